"""The command `catchment`."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from catchment.app.access import access
from catchment.app.failures import reported
from catchment.app.operating import overlay, subscriptions
from catchment.app.options import CaOption, CertificateOption, JsonOption, KeyOption, ServerOption, credentials_of
from catchment.app.printing import print_json, print_rows, print_warnings
from catchment.app.topics import topics

__all__ = ["app", "main"]

DISTRIBUTION = "catchment-pubsub"
"""As the package index knows this project; the module and the command are `catchment`."""

app = typer.Typer(
    name="catchment",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
bench = typer.Typer(help="Measure speed, next to other ways of doing the same.", no_args_is_help=True)
app.add_typer(bench, name="bench")
reproduce = typer.Typer(help="Run the experiments of the papers, and draw their figures.", no_args_is_help=True)
app.add_typer(reproduce, name="reproduce")
app.add_typer(access, name="access")
app.add_typer(overlay, name="overlay")
app.command()(reported(subscriptions))
app.add_typer(topics, name="topics")

MasterOption = Annotated[str | None, typer.Option(help="Spark master; local[*] unless given.")]
SHOWN_DIFFERENCES = 10


def _print_version(asked: bool) -> None:
    if asked:
        print(f"catchment {_version()}")
        raise typer.Exit


def _version() -> str:
    try:
        return version(DISTRIBUTION)
    except PackageNotFoundError:
        return "(not installed)"


@app.callback()
def options(
    show_version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version, and stop.")
    ] = False,
) -> None:
    """Content-based publish/subscribe that aggregates events on their way, on Apache Spark."""


@app.command()
@reported
def replay(
    config: Annotated[Path | None, typer.Argument(help="A TOML file that describes the job.")] = None,
    source: Annotated[str | None, typer.Option(help="Files of events, if there is no TOML file.")] = None,
    subscriptions: Annotated[Path | None, typer.Option(help="A file of subscriptions: .sql, .jsonl, .csv.")] = None,
    topic: Annotated[str | None, typer.Option(help="The topic of files that do not say it.")] = None,
    attributes: Annotated[str | None, typer.Option(help="Types, as in 'speed=float, highway=string'.")] = None,
    broker: Annotated[str | None, typer.Option(help="The broker of files that do not say it.")] = None,
    format: Annotated[str | None, typer.Option(help="parquet, csv or json; else the ending says it.")] = None,  # noqa: A002
    workload: Annotated[str | None, typer.Option(help="traffic or stock: the experiment of the paper.")] = None,
    data: Annotated[Path | None, typer.Option(help="The folder with the workload's real data.")] = None,
    events: Annotated[int, typer.Option(help="How many to make up, without --data.", min=0)] = 300_000,
    subscriptions_count: Annotated[int, typer.Option(help="How many to draw for a workload.", min=0)] = 200,
    window: Annotated[str | None, typer.Option(help="Of drawn subscriptions: '1 hour/10 minutes'.")] = None,
    regular_share: Annotated[float, typer.Option(help="Of drawn subscriptions, how many want events.")] = 0.1,
    seed: Annotated[int, typer.Option(help="Of what is drawn and made up.", min=0)] = 1,
    placement: Annotated[
        str | None, typer.Option(help="late, early, adaptive, selective, coordinated, cover, optimal.")
    ] = None,
    output: Annotated[str | None, typer.Option(help="Write the results as Parquet below this folder.")] = None,
    overwrite: Annotated[bool, typer.Option(help="Replace results that are there.")] = False,
    verify: Annotated[bool, typer.Option(help="Compare with the oracle; exit with 1 if anything differs.")] = False,
    master: MasterOption = None,
    as_json: JsonOption = False,
) -> None:
    """Answer all subscriptions over the events that are there."""
    from catchment.app.config import load_configuration
    from catchment.app.replaying import from_options, from_workload, replay_job, show_replayed
    from catchment.lab.progress import Steps
    from catchment.model.errors import ConfigurationError

    if sum(given is not None for given in (config, source, workload)) != 1:
        raise ConfigurationError("accepted is one of: a TOML file, --source with --subscriptions, --workload")
    if config is not None:
        job = load_configuration(config)
    elif workload is not None:
        job = from_workload(
            workload=workload, data=data, events=events, count=subscriptions_count, seed=seed, window=window,
            regular_share=regular_share,
        )  # fmt: skip
    else:
        if subscriptions is None:
            raise ConfigurationError("--source is given without --subscriptions; accepted is a file of subscriptions")
        job = from_options(
            source=str(source), subscriptions=subscriptions, topic=topic, attributes=attributes, broker=broker,
            file_format=format,
        )  # fmt: skip
    chosen = _given(master=master, placement=placement)
    job = replace(job, options=replace(job.options, **chosen))
    replayed = replay_job(job, output=output, overwrite=overwrite, check_with_oracle=verify, steps=Steps())
    print_warnings(replayed.warnings)
    if as_json:
        print_json(asdict(replayed))
    else:
        show_replayed(replayed)
    verification = replayed.verification
    if verification is not None and verification.differences:
        console = Console(stderr=True, soft_wrap=True, highlight=False)
        console.print(f"{len(verification.differences)} differences from the oracle, among them:", markup=False)
        for line in verification.differences[:SHOWN_DIFFERENCES]:
            console.print(f"  {line}", markup=False)
        raise typer.Exit(1)


@app.command()
@reported
def run(
    config: Annotated[Path, typer.Argument(help="A TOML file that describes the job.")],
    checkpoint: Annotated[str | None, typer.Option(help="Where the job keeps what it must remember.")] = None,
    output: Annotated[str | None, typer.Option(help="Write the results as Parquet below this folder.")] = None,
    seconds: Annotated[float | None, typer.Option(help="Stop after so many.", min=0)] = None,
    available_now: Annotated[bool, typer.Option(help="Stop when all that is there was read.")] = False,
    end: Annotated[bool, typer.Option(help="When it stops, close every open window; no later run goes on.")] = False,
    master: MasterOption = None,
    as_json: JsonOption = False,
) -> None:
    """Answer subscriptions over a stream, until Ctrl-C; a changed file of subscriptions is taken up while it runs."""
    from catchment.app.config import load_configuration
    from catchment.app.running import run_job, show_ran, with_options
    from catchment.lab.progress import Steps

    job = with_options(
        load_configuration(config), checkpoint=checkpoint, output=output, master=master, available_now=available_now
    )
    ran = run_job(job, seconds=seconds, end=end, steps=Steps())
    if as_json:
        print_json(asdict(ran))
    else:
        show_ran(ran)


@app.command()
@reported
def check(
    config: Annotated[Path | None, typer.Argument(help="A TOML file that describes the job.")] = None,
    sql: Annotated[str | None, typer.Option(help="A subscription that might be added; needs no file.")] = None,
    at: Annotated[str | None, typer.Option(help="The broker of the subscription in --sql.")] = None,
    name: Annotated[str | None, typer.Option(help="A subscription of the file, or a name for --sql.")] = None,
    attributes: Annotated[
        str | None, typer.Option(help="Types, as in 'speed=float', for --sql without a file.")
    ] = None,
    sample: Annotated[int, typer.Option(help="Events to estimate selectivity on; 0 for none.", min=0)] = 10_000,
    master: MasterOption = None,
    as_json: JsonOption = False,
) -> None:
    """Tell what a subscription would do, without doing it; or list those of the file."""
    from catchment.app.checking import check_all, check_one, job_of_options, show_all, show_checked
    from catchment.app.config import load_configuration
    from catchment.lab.progress import Steps
    from catchment.model.errors import ConfigurationError

    if config is None and sql is None:
        raise ConfigurationError("there is nothing to check; accepted are a TOML file, --sql, or both")
    if config is not None and attributes is not None:
        raise ConfigurationError(f"--attributes is given, but {config} says the types; accepted is one of them")
    job = load_configuration(config) if config is not None else job_of_options(str(sql), attributes)
    content: Any
    if sql is None and name is None:
        content = check_all(job)
        print_json(content) if as_json else show_all(content)
        return
    content = check_one(job, sql=sql, at=at, name=name, sample=sample, master=master, steps=Steps())
    print_json(content) if as_json else show_checked(content)


@app.command()
@reported
def demo(
    events: Annotated[int, typer.Option(help="How many to make up.", min=1)] = 300_000,
    subscriptions: Annotated[int, typer.Option(help="How many to draw.", min=1)] = 200,
    seed: Annotated[int, typer.Option(help="Of what is drawn and made up.", min=0)] = 1,
    output: Annotated[Path, typer.Option(help="Where the report page goes.")] = Path("catchment-report"),
    master: MasterOption = None,
    as_json: JsonOption = False,
) -> None:
    """See it work: made-up traffic on the overlay of the paper, every answer, and what travelled on each link."""
    from catchment.lab.demo import Demo, demo_console, run_demo
    from catchment.lab.progress import Steps

    shown = run_demo(Demo(events=events, subscriptions=subscriptions, seed=seed), output, Steps(), master=master)
    if as_json:
        print_json(shown.as_dict())
    else:
        demo_console(shown)


@app.command()
@reported
def simulate(
    seed: Annotated[int, typer.Option(help="What everything is drawn from.", min=0)] = 0,
    seeds: Annotated[int, typer.Option(help="How many, from that one on.", min=1)] = 1,
    steps: Annotated[int, typer.Option(help="How much clients do in each.", min=1)] = 60,
    placement: Annotated[str | None, typer.Option(help="Where brokers aggregate; drawn unless given.")] = None,
    trace: Annotated[bool, typer.Option(help="Print every message.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Brokers and clients in virtual time, with faults; exits with 1 if a subscriber did not get what it should."""
    from catchment.app.simulating import as_dict, show_simulated, show_trace, simulated

    stories = simulated(seed, seeds, steps, trace, placement)
    if trace:
        for story in stories:
            show_trace(story)
    elif as_json:
        print_json([as_dict(story) for story in stories])
    else:
        show_simulated(stories)
    if any(story.problems for story in stories):
        raise typer.Exit(1)


MetricsOption = Annotated[
    int | None,
    typer.Option(help="Serve /metrics and /health on this port of 127.0.0.1; 0 for any.", min=0, max=65_535),
]
LogOption = Annotated[
    str | None, typer.Option(help="json or text; unless given, text on a terminal and JSON lines elsewhere.")
]
AtOption = Annotated[str | None, typer.Option("--at", help="The nearest broker; the first one unless given.")]


def _reports(log: str | None) -> Any:
    from catchment.app.serving import stderr_lines
    from catchment.model.errors import ConfigurationError
    from catchment.transport.reports import FORMATS

    if log is not None and log not in FORMATS:
        raise ConfigurationError(f"--log is {log!r}; accepted are {', '.join(FORMATS)}")
    return stderr_lines(log)


def _port(of: str) -> Any:
    return typer.Option(help=f"Listen on this port of 127.0.0.1 for {of}; 0 is a free one.", min=0, max=65535)


def _say(line: str) -> None:
    Console(stderr=True, soft_wrap=True, highlight=False).print(line, markup=False)


@app.command()
@reported
def up(
    config: Annotated[Path, typer.Argument(help="A TOML file that describes topics, overlay, subscriptions, options.")],
    server: Annotated[str | None, typer.Option(help="Address of your NATS server; else one is started.")] = None,
    store: Annotated[Path | None, typer.Option(help="Where the started server keeps its streams.")] = None,
    processes: Annotated[int | None, typer.Option(help="Over how many processes; one a broker.", min=1)] = None,
    access_file: Annotated[
        Path | None, typer.Option("--access", help="Users of the started server; it follows changes of the file.")
    ] = None,
    certificate: Annotated[Path | None, typer.Option(help="Of the started server, PEM: it speaks TLS.")] = None,
    certificate_key: Annotated[Path | None, typer.Option(help="The key of the certificate.")] = None,
    metrics: MetricsOption = None,
    log: LogOption = None,
    key: KeyOption = None,
    ca: CaOption = None,
    client_certificate: CertificateOption = None,
    http: Annotated[int | None, _port("HTTP: publish, and server-sent events")] = None,
    mqtt: Annotated[int | None, _port("MQTT, by the started server")] = None,
    mqtt_ca: Annotated[
        Path | None, typer.Option(help="With --access: who has signed the certificates of MQTT devices.")
    ] = None,
) -> None:
    """Run a whole overlay on this machine until Ctrl-C, and print what the file's subscriptions bring as JSON lines."""
    from catchment.app.config import load_configuration
    from catchment.app.guarded import certificates_of
    from catchment.app.outside import Ports
    from catchment.app.serving import up as run_overlay
    from catchment.model.errors import ConfigurationError

    for option, given in (
        ("--store", store), ("--access", access_file), ("--certificate", certificate), ("--mqtt", mqtt)
    ):  # fmt: skip
        if server is not None and given is not None:
            raise ConfigurationError(f"{option} is given with --server; accepted is one of them")
    if server is None and key is not None:
        raise ConfigurationError("--key is given without --server; accepted is --access, for the started server")
    job = load_configuration(config)

    def tell(line: dict[str, Any]) -> None:
        print(json.dumps(line, ensure_ascii=False), flush=True)

    run_overlay(
        job, url=server, folder=store, processes=processes, report=_reports(log), tell=tell,
        credentials=credentials_of(key, ca, client_certificate), access=access_file,
        certificates=certificates_of(certificate, certificate_key, None), ports=Ports(http, mqtt, mqtt_ca),
        metrics=metrics,
    )  # fmt: skip


@app.command()
@reported
def broker(
    name: Annotated[str, typer.Argument(help="Which broker of the overlay.")],
    server: ServerOption,
    config: Annotated[Path | None, typer.Argument(help="A TOML file; else the overlay that the server has.")] = None,
    metrics: MetricsOption = None,
    log: LogOption = None,
    key: KeyOption = None,
    ca: CaOption = None,
    client_certificate: CertificateOption = None,
) -> None:
    """Run one broker against your NATS server until Ctrl-C."""
    from catchment.app.config import load_configuration
    from catchment.app.serving import broker_forever

    job = None if config is None else load_configuration(config)
    broker_forever(name, server, job, _reports(log), credentials_of(key, ca, client_certificate), metrics)


@app.command()
@reported
def http(
    server: ServerOption,
    port: Annotated[int, typer.Option(help="Where to listen; 0 is a free port.", min=0, max=65535)] = 8080,
    host: Annotated[str, typer.Option(help="The address to listen at; without users, anybody may ask.")] = "127.0.0.1",
    origin: Annotated[list[str] | None, typer.Option(help="A site whose pages may ask; several may be given.")] = None,
    certificate: Annotated[Path | None, typer.Option(help="Of this HTTP server, PEM: it speaks TLS.")] = None,
    certificate_key: Annotated[Path | None, typer.Option(help="The key of the certificate.")] = None,
    key: KeyOption = None,
    ca: CaOption = None,
    client_certificate: CertificateOption = None,
) -> None:
    """Serve an overlay over HTTP until Ctrl-C: publish by POST, subscribe by server-sent events."""
    from catchment.app.guarded import certificates_of
    from catchment.app.outside import http_forever

    http_forever(
        server, host, port, origin or [], _reports("text"), credentials_of(key, ca, client_certificate),
        certificates_of(certificate, certificate_key, None),
    )  # fmt: skip


@app.command()
@reported
def publish(
    topic: Annotated[str, typer.Argument(help="Of all events.")],
    server: ServerOption,
    at: AtOption = None,
    stored: Annotated[bool, typer.Option("--stored", help="Wait until events are stored, not until taken.")] = False,
    key: KeyOption = None,
    ca: CaOption = None,
    client_certificate: CertificateOption = None,
    as_json: JsonOption = False,
) -> None:
    """Publish JSON lines from standard input; exits with 1 if any was refused."""
    from catchment.app.serving import publish_lines

    credentials = credentials_of(key, ca, client_certificate)
    found = publish_lines(topic, server, at, sys.stdin.fileno(), stored=stored, credentials=credentials)
    if as_json:
        print_json(found)
    else:
        _say(f"published {found['published']}, late {len(found['late'])}, refused {len(found['refused'])}")
        for one in found["refused"][:SHOWN_DIFFERENCES]:
            _say(f"  line {one['line']}: {one['reason']}")
    if found["refused"]:
        raise typer.Exit(1)


@app.command()
@reported
def subscribe(
    sql: Annotated[str, typer.Argument(help="What to ask for.")],
    server: ServerOption,
    at: AtOption = None,
    name: Annotated[str | None, typer.Option(help="Of the subscription.")] = None,
    durable: Annotated[str | None, typer.Option(help="A client's name, for whom all is collected while away.")] = None,
    count: Annotated[int | None, typer.Option(help="Stop after so many.", min=1)] = None,
    since: Annotated[str | None, typer.Option(help="Begin at a time, or so long ago: '2 hours'.")] = None,
    key: KeyOption = None,
    ca: CaOption = None,
    client_certificate: CertificateOption = None,
) -> None:
    """Print events or values of windows as JSON lines, as they come, until Ctrl-C."""
    from catchment.app.serving import subscribe_lines
    from catchment.model.errors import ConfigurationError

    if durable is not None and name is None:
        raise ConfigurationError("--durable is given without --name; accepted is a name under which it is asked again")
    credentials = credentials_of(key, ca, client_certificate)
    subscribe_lines(sql, server, at, name=name, durable=durable, count=count, since=since, credentials=credentials)


@app.command()
@reported
def interest(
    topic: Annotated[str, typer.Argument(help="The topic whose clients are asked about.")],
    server: ServerOption,
    at: AtOption = None,
    function: Annotated[str, typer.Option(help="subscriptions, subscribers or publishers.")] = "subscriptions",
    where: Annotated[str | None, typer.Option(help="Only subscriptions that overlap this condition.")] = None,
    tolerance: Annotated[float | None, typer.Option(help="How far the value may be from the truth.")] = None,
    watch: Annotated[bool, typer.Option("--watch", help="A line for each change, until Ctrl-C.")] = False,
    key: KeyOption = None,
    ca: CaOption = None,
    client_certificate: CertificateOption = None,
) -> None:
    """How many subscriptions or publishers a topic has, as JSON: the value, and how far the truth may be from it."""
    from catchment.app.interest import interest_lines

    credentials = credentials_of(key, ca, client_certificate)
    interest_lines(
        topic, server, at, function=function, where=where, tolerance=tolerance, watch=watch, credentials=credentials
    )


SizesOption = Annotated[list[int] | None, typer.Option("--size", min=1, help="How many; may be given several times.")]


@bench.command("matching")
@reported
def bench_matching(
    size: SizesOption = None,
    events: Annotated[int | None, typer.Option(min=1, help="How many events are matched.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Events a second through the matcher, next to a linear scan over so many filters."""
    _bench("catchment.lab.bench_matching", as_json, **_given(sizes=size, events=events))


@bench.command("simulation")
@reported
def bench_simulation(
    quick: Annotated[bool, typer.Option(help="A small overlay and few subscriptions.")] = False,
    as_json: JsonOption = False,
) -> None:
    """How much of an overlay one core simulates, and what covering saves."""
    module = import_module("catchment.lab.bench_simulation")
    _bench(module.__name__, as_json, **(module.QUICK if quick else {}))


@bench.command("broker")
@reported
def bench_broker(
    only: Annotated[
        list[str] | None,
        typer.Option(help="Subscriptions: regular, late, early, adaptive, cover; or waiting frames, posts, snapshots."),
    ] = None,
    size: SizesOption = None,
    batch: Annotated[
        list[int] | None, typer.Option(min=1, help="Events in a frame; may be given several times.")
    ] = None,
    limit: Annotated[float | None, typer.Option(min=0.1, help="Seconds of CPU time for each row, at most.")] = None,
    quick: Annotated[bool, typer.Option(help="Few events.")] = False,
    as_json: JsonOption = False,
) -> None:
    """CPU time that one broker takes for an event, next to the bare stages."""
    module = import_module("catchment.lab.bench_broker")
    given = _given(only=only, sizes=size, batches=batch, limit_s=limit)
    _bench(module.__name__, as_json, **{**(module.QUICK if quick else {}), **given})


@bench.command("live")
@reported
def bench_live(
    only: Annotated[
        list[str] | None, typer.Option(help="Measure only this: throughput, paced, disk, crowd; several times.")
    ] = None,
    quick: Annotated[bool, typer.Option(help="Few events.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Events a second through running brokers, next to raw JetStream; how late they come; what each process takes."""
    module = import_module("catchment.lab.bench_live")
    _bench(module.__name__, as_json, **{**(module.QUICK if quick else {}), **_given(only=only or None)})


@bench.command("placement")
@reported
def bench_placement(
    data: Annotated[Path | None, typer.Option(help="A folder with stock and traffic; else generated.")] = None,
    seconds: Annotated[float | None, typer.Option(help="How long each run is, 2 to 10000; 60 unless given.")] = None,
    quick: Annotated[bool, typer.Option(help="Short runs of some points.")] = False,
    as_json: JsonOption = False,
) -> None:
    """What each placement sends, in relation to the least that one could send."""
    module = import_module("catchment.lab.bench_placement")
    _bench(module.__name__, as_json, **{**(module.QUICK if quick else {}), **_given(folder=data, seconds=seconds)})


@reproduce.command("debs14")
@reported
def reproduce_debs14(
    data: Annotated[Path | None, typer.Option(help="A folder with stock and traffic; else generated.")] = None,
    output: Annotated[Path, typer.Option(help="The folder of the report page.")] = Path("catchment-debs14"),
    quick: Annotated[bool, typer.Option(help="Short runs of some points.")] = False,
    as_json: JsonOption = False,
) -> None:
    """The fourteen figures of the DEBS'14 paper, next to what it says of them."""
    from catchment.lab.debs14.reproducing import COLUMNS, QUICK
    from catchment.lab.debs14.reproducing import reproduce as run_all

    with _telling("measuring") as report:
        found = run_all(output=output, folder=data, report=report, **(QUICK if quick else {}))
    if as_json:
        print_json({"page": str(found.page), "claims": [asdict(one) for one in found.claims]})
        return
    print_rows("What the paper says", COLUMNS, found.rows())
    Console(highlight=False, soft_wrap=True).print(f"The page is {found.page}", markup=False)


@app.command()
@reported
def calibrate(as_json: JsonOption = False) -> None:
    """Measure what a broker takes for what it does, for simulations that show load."""
    from catchment.lab.calibrating import calibrated, show_calibrated

    found = calibrated()
    print_json(asdict(found)) if as_json else show_calibrated(found)


@bench.command("pipeline")
@reported
def bench_pipeline(
    size: SizesOption = None,
    events: Annotated[int | None, typer.Option(min=1, help="How many events are read.")] = None,
    quick: Annotated[bool, typer.Option(help="A tenth of the events, and few subscriptions.")] = False,
    as_json: JsonOption = False,
) -> None:
    """The pipeline on Spark with so many subscriptions, next to its peers."""
    module = import_module("catchment.lab.bench_pipeline")
    _bench(module.__name__, as_json, **{**(module.QUICK if quick else {}), **_given(sizes=size, events=events)})


def _given(**options: Any) -> dict[str, Any]:
    return {name: value for name, value in options.items() if value is not None}


@contextmanager
def _telling(title: str) -> Iterator[Callable[[str], None]]:
    """Something to tell progress to: a line that changes on a terminal, a line for each change elsewhere."""
    console = Console(stderr=True, highlight=False)
    shown = ""
    with console.status(title) as status:

        def report(line: str) -> None:
            nonlocal shown
            status.update(line)
            if line != shown and not console.is_terminal:
                console.print(line, markup=False)
            shown = line

        yield report


def _bench(name: str, as_json: bool, **options: Any) -> None:
    measured = import_module(name)
    with _telling("measuring") as report:
        result = measured.run(report=report, **options)
    print_json(result) if as_json else measured.print_report(result)


def main() -> None:
    """The entry point of the installed command."""
    app()


if __name__ == "__main__":
    main()
