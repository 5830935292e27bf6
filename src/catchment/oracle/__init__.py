"""The central reference: what must be delivered, computed plainly and slowly."""

from catchment.oracle.answer import Answer, differences
from catchment.oracle.central import oracle

__all__ = ["Answer", "differences", "oracle"]
