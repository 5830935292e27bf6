"""What links of a simulation have carried, and what brokers have handled."""

from __future__ import annotations

from collections import Counter

from catchment.broker.inputs import Step, Traffic, add_traffic

__all__ = ["Tally"]


class Tally:
    """Adds up what brokers say of their steps."""

    def __init__(self) -> None:
        self.frames = 0
        """That brokers have taken."""
        self.repeated = 0
        """Frames that came again."""
        self.joined = 0
        """Messages with events that were matched together with others."""
        self.handled: Counter[str] = Counter()
        """Messages that brokers have taken, by their kind."""
        self.events = 0
        """Each counted at every broker that it reached."""
        self.filters = 0
        """That brokers have told each other."""
        self.transitions = 0
        """How often a placement has changed between forwarding and aggregating."""
        self.carried: Traffic = {}
        """By directed link between brokers and kind: messages and bytes; every collected value is a message."""

        self.carried_by_advice: Traffic = {}
        """By directed link, advice and the kind that it declared, or `along`: messages and bytes."""

    def add(self, source: str, step: Step) -> None:
        self.frames += step.work["frame"]
        self.repeated += sum(one.kind == "repeated" for one in step.outcomes)
        self.joined += step.work["join"]
        self.handled.update(step.taken)
        self.events += step.work["match"]
        self.filters += step.work["demand"]
        self.transitions += step.work["transition"]
        for key, carried in step.traffic.items():
            add_traffic(self.carried, (source, *key), *carried)
        for key, carried in step.traffic_by_advice.items():
            add_traffic(self.carried_by_advice, (source, *key), *carried)

    @property
    def messages(self) -> int:
        """Events, and messages about anything else."""
        return self.handled.total() - self.handled["Published"] - self.handled["PublishEvents"] + self.events
