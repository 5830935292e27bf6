"""Interest: values about the clients of a topic, with bounded imprecision (ASIA, sections 3.3 and 3.4)."""

from catchment.broker.interest.advice import ADVICE, Interest
from catchment.broker.interest.functions import FUNCTIONS
from catchment.broker.interest.options import InterestOptions

__all__ = ["ADVICE", "FUNCTIONS", "Interest", "InterestOptions"]
