"""Every error a user can meet.

    CatchmentError
    ├── FilterError            a condition that does not parse, or says more than a filter can
    ├── SubscriptionError      SQL that is no subscription: clause, topic, attribute, type, window
    ├── SchemaError            a topic or column whose type no subscription can use
    ├── EventError             data that is no event: NaN, wrong type, missing column, time out of range
    ├── AggregateOverflowError a value beyond its type; met only inside, as it is reported and not raised
    ├── FrameError             bytes that are no message, or of another version
    ├── OverlayError           a broker or link that is not there, or an overlay in pieces
    ├── ConfigurationError     a TOML file, option or environment that says something impossible
    ├── CheckpointError        a checkpoint that belongs to another job
    │   └── VersionError       something that another version of Catchment has stored
    └── TransportError         a server that is out of reach, refuses, or lacks what was stored there

Each message names what was given and says what is accepted.
"""

import msgspec

__all__ = [
    "UNREADABLE",
    "AggregateOverflowError",
    "CatchmentError",
    "CheckpointError",
    "ConfigurationError",
    "EventError",
    "FilterError",
    "FrameError",
    "OverlayError",
    "SchemaError",
    "SubscriptionError",
    "TransportError",
    "VersionError",
    "require_type",
]


UNREADABLE = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
"""What msgspec raises of bytes from elsewhere: of another form, with broken text, or nested too deeply."""


class CatchmentError(ValueError):
    """The root of all errors that Catchment raises about what it was given."""


class FilterError(CatchmentError):
    """A condition that does not parse, mixes types, or needs more than 64 disjuncts."""


class SubscriptionError(CatchmentError):
    """SQL that cannot be a subscription."""


class SchemaError(CatchmentError):
    """An attribute or column whose type is not one of bool, int, float, string, timestamp."""


class EventError(CatchmentError):
    """Data that cannot be an event."""


class AggregateOverflowError(CatchmentError):
    """A value beyond its type: a sum of integers beyond 64 bits, a real number beyond the largest double."""


class FrameError(CatchmentError):
    """Bytes that are no message between clients and brokers."""


class OverlayError(CatchmentError):
    """An overlay that is not connected, or a broker that is not part of it."""


class ConfigurationError(CatchmentError):
    """A setting that cannot be carried out."""


class CheckpointError(CatchmentError):
    """A checkpoint written by another job."""


class VersionError(CheckpointError):
    """Something that another version of Catchment has stored, and that this one must neither read nor delete."""


class TransportError(CatchmentError):
    """A NATS server that cannot be reached, refuses a request, or has lost what it was given."""


def require_type(what: str, given: object, *accepted: type) -> None:
    """Refuse an argument that is something else altogether."""
    if not isinstance(given, accepted):
        names = " or ".join(f"{one.__module__}.{one.__qualname__}" for one in accepted)
        raise ConfigurationError(f"{what} is of type {type(given).__qualname__}; accepted is {names}")
