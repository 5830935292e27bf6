"""What must be true of a simulated world. Each checker says what is not, one line each."""

from catchment.simulation.checking.bounds import Bounds
from catchment.simulation.checking.conduct import check_answers, check_conduct, check_posts
from catchment.simulation.checking.deliveries import check_deliveries
from catchment.simulation.checking.notifications import check_notifications
from catchment.simulation.checking.promptness import check_promptness
from catchment.simulation.checking.routes import check_emptiness, check_routes

__all__ = [
    "Bounds",
    "check_answers",
    "check_conduct",
    "check_deliveries",
    "check_emptiness",
    "check_notifications",
    "check_posts",
    "check_promptness",
    "check_routes",
]
