"""`/metrics` and `/health` of a process: its figures in the text format of Prometheus, and whether it is well."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Literal, NamedTuple

from catchment.transport.figures import STEP_BOUNDS_S, BrokerFigures, LinkFigures
from catchment.transport.http_server import Answer, HttpError, Request

__all__ = ["MetricsAnswers", "exposition"]

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
CLIENTS = "clients"
"""What stands for all clients where links are told apart by `peer`."""

Labels = Mapping[str, str]
Samples = Iterator[tuple[Labels, float]]


class Metric(NamedTuple):
    """One metric: its name without the prefix, and its samples of one broker."""

    name: str
    kind: Literal["counter", "gauge"]
    help: str
    samples: Callable[[BrokerFigures], Iterable[tuple[Labels, float]]]


def _plain(read: Callable[[BrokerFigures], float | None]) -> Callable[[BrokerFigures], Samples]:
    def samples(figures: BrokerFigures) -> Samples:
        value = read(figures)
        if value is not None:
            yield {}, value

    return samples


def _by(label: str, read: Callable[[BrokerFigures], Mapping[str, float]]) -> Callable[[BrokerFigures], Samples]:
    return lambda figures: (({label: name}, value) for name, value in read(figures).items())


def _peers(figures: BrokerFigures) -> Iterator[tuple[str, LinkFigures]]:
    yield CLIENTS, figures.clients
    yield from figures.links.items()


def _by_peer(read: Callable[[LinkFigures], float]) -> Callable[[BrokerFigures], Samples]:
    return lambda figures: (({"peer": name}, read(link)) for name, link in _peers(figures))


def _by_peer_and(label: str, read: Callable[[LinkFigures], Mapping[str, float]]) -> Callable[[BrokerFigures], Samples]:
    return lambda figures: (
        ({"peer": peer, label: name}, value) for peer, link in _peers(figures) for name, value in read(link).items()
    )


METRICS = (
    Metric("up", "gauge", "Whether the broker takes inputs.", _plain(lambda one: one.state == "serving")),
    Metric("lives_total", "counter", "How often the process has begun to be this broker.", _plain(lambda o: o.lives)),
    Metric("start_time_seconds", "gauge", "When the process began.", _plain(lambda one: one.started_s)),
    Metric("process_cpu_seconds_total", "counter", "CPU time of the process.", _plain(lambda one: one.cpu_s)),
    Metric("position", "gauge", "Position of the last input that was handled.", _plain(lambda one: one.position)),
    Metric("inputs_total", "counter", "Inputs by what became of them.", _by("outcome", lambda one: one.inputs)),
    Metric("inputs_waiting", "gauge", "Inputs stored and not handled.", _plain(lambda one: one.inputs_waiting)),
    Metric("lag_seconds", "gauge", "How long the oldest of them has waited.", _plain(lambda one: one.lag_s)),
    Metric("events_total", "counter", "Events by what became of them.", _by_peer_and("outcome", lambda x: x.events_in)),
    Metric("frames_in_total", "counter", "Frames and notes that came.", _by_peer(lambda link: link.frames_in)),
    Metric("bytes_in_total", "counter", "Their bytes.", _by_peer(lambda link: link.bytes_in)),
    Metric("frames_out_total", "counter", "Frames that were handed over.", _by_peer(lambda link: link.frames_out)),
    Metric("bytes_out_total", "counter", "Their bytes.", _by_peer(lambda link: link.bytes_out)),
    Metric("messages_out_total", "counter", "Messages out, by kind.", _by_peer_and("kind", lambda x: x.messages_out)),
    Metric("frames_waiting", "gauge", "Frames that are not stored yet.", _by_peer(lambda link: link.frames_waiting)),
    Metric("snapshot_position", "gauge", "Input that the snapshot stands for.", _plain(lambda o: o.snapshot_position)),
    Metric("snapshot_age_seconds", "gauge", "Age of the whole snapshot.", _plain(lambda one: one.snapshot_age_s)),
    Metric("clients", "gauge", "Clients that are here.", _plain(lambda one: one.clients_here)),
    Metric("clients_parked", "gauge", "Durable clients that are away.", _plain(lambda one: one.clients_parked)),
    Metric("subscriptions", "gauge", "Subscriptions of its clients.", _plain(lambda one: one.subscriptions)),
    Metric("has_room", "gauge", "Whether clients may publish.", _plain(lambda one: one.has_room)),
    Metric("table_size", "gauge", "Size of all that could grow.", _by("table", lambda one: one.tables)),
    Metric("oddities_total", "counter", "What it should not meet.", _by("what", lambda one: one.counters)),
)  # fmt: skip


def exposition(brokers: Iterable[BrokerFigures]) -> str:
    """All figures in the text format of Prometheus."""
    given = list(brokers)
    lines: list[str] = []
    for metric in METRICS:
        name = f"catchment_{metric.name}"
        lines += [f"# HELP {name} {metric.help}", f"# TYPE {name} {metric.kind}"]
        for one in given:
            lines += [_line(name, {"broker": one.broker, **labels}, value) for labels, value in metric.samples(one)]
    name = "catchment_step_seconds"
    lines += [f"# HELP {name} How long steps took.", f"# TYPE {name} histogram"]
    for one in given:
        for most, count in (*zip(map(str, STEP_BOUNDS_S), one.steps_within, strict=True), ("+Inf", one.steps)):
            lines.append(_line(f"{name}_bucket", {"broker": one.broker, "le": most}, count))
        lines.append(_line(f"{name}_sum", {"broker": one.broker}, one.step_seconds))
        lines.append(_line(f"{name}_count", {"broker": one.broker}, one.steps))
    return "\n".join(lines) + "\n"


def _line(name: str, labels: Labels, value: float) -> str:
    inside = ",".join(f'{label}="{_escaped(text)}"' for label, text in labels.items())
    number = int(value) if isinstance(value, (bool, int)) else repr(float(value))
    return f"{name}{{{inside}}} {number}"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


class MetricsAnswers:
    """Answers `GET /metrics` and `GET /health`; `figures` gives those of each broker of this process."""

    def __init__(self, figures: Callable[[], list[BrokerFigures]]) -> None:
        self._figures = figures

    async def handle(self, request: Request) -> Answer:
        if request.path not in (("metrics",), ("health",)):
            raise HttpError(404, f"there is no /{'/'.join(request.path)}; accepted are /metrics and /health")
        if request.method not in ("GET", "HEAD"):
            raise HttpError(405, f"method is {request.method}; accepted is GET", {"allow": "GET, HEAD"})
        if request.path == ("health",):
            return self._health()
        return Answer(text=exposition(self._figures()), headers={"content-type": CONTENT_TYPE})

    def _health(self) -> Answer:
        brokers: dict[str, dict[str, Any]] = {}
        for one in self._figures():
            brokers[one.broker] = {
                "state": one.state,
                "position": one.position,
                "inputs_waiting": one.inputs_waiting,
                "lag_s": one.lag_s,
            }
            if one.problem:
                brokers[one.broker]["problem"] = one.problem
        is_well = not any("problem" in one for one in brokers.values())
        return Answer({"healthy": is_well, "brokers": brokers}, status=200 if is_well else 503)
