"""What a TOML file may say, and how each mistake in it is named."""

from pathlib import Path

import pytest

from catchment.app.asking import read_subscriptions
from catchment.app.config import Live, load_configuration
from catchment.app.running import answered_here
from catchment.app.serving import described
from catchment.broker.limits import ClientLimits
from catchment.model.errors import CatchmentError
from catchment.model.schema import Type
from catchment.overlay.placement import Cost
from catchment.pipeline.generated import Generated
from catchment.pipeline.sources import Files, FromColumn, FromOverlay, Recorded
from catchment.transport.history import Kept
from catchment.workloads import debs14_links

EXAMPLES = Path(__file__).parents[2] / "examples"

WHOLE = """
[topics.weather]
celsius = "float"
note = "string"

[overlay]
links = [["hill", "town"]]

[[subscriptions]]
name = "wind"
at = "town"
sql = "SELECT max(celsius) FROM weather GROUP BY window(ts, '1 minute')"

[source]
format = "csv"
path = "in/*.csv"
event_id = "id"
ts = "time"
topic = "weather"
broker = { column = "station" }
columns = { celsius = "temperature" }
max_files_per_trigger = 2

[sink]
format = "parquet"
path = "out"

[options]
lateness = "10 seconds"
delivery = "revisions"
placement = "late"
deduplicate = true
checkpoint = "ck"
trigger = "available now"
idle_after = "never"
master = "local[1]"
"""


def written(folder: Path, text: str) -> Path:
    file = folder / "job.toml"
    file.write_text(text)
    return file


def test_everything_that_can_be_said_is_taken_up(tmp_path: Path) -> None:
    job = load_configuration(written(tmp_path, WHOLE))
    assert job.topics["weather"]["celsius"] is Type.FLOAT
    assert job.overlay is not None
    assert job.overlay.brokers == ("hill", "town")
    assert [one.name for one in job.subscriptions] == ["wind"]
    assert isinstance(job.source, Files)
    assert job.source.path == str(tmp_path / "in/*.csv")  # relative to the file
    assert job.source.broker == FromColumn("station")
    assert job.source.columns == {"celsius": "temperature"}
    assert (job.sink.format, job.sink.path) == ("parquet", str(tmp_path / "out"))
    assert (job.options.lateness, job.options.delivery, job.options.placement) == ("10 seconds", "revisions", "late")
    assert (job.options.trigger, job.options.idle_after, job.options.master) == ("available now", None, "local[1]")
    assert job.options.checkpoint == str(tmp_path / "ck")


def test_what_messages_cost_may_be_said(tmp_path: Path) -> None:
    job = load_configuration(written(tmp_path, "[options.cost]\nbyte = 0.5\nmerge = 2"))
    assert job.options.cost == Cost(message=1.0, byte=0.5, match=0.0, merge=2.0)
    wrongs = {"byte = -1": "cost.byte is -1; accepted is a number from 0 on", "cpu = 1": "cost.cpu is unknown"}
    for wrong, said in wrongs.items():
        with pytest.raises(CatchmentError, match=said):
            load_configuration(written(tmp_path, f"[options.cost]\n{wrong}"))


@pytest.mark.parametrize("name", ["traffic.toml", "station.toml"])
def test_the_examples_are_accepted(name: str) -> None:
    job = load_configuration(EXAMPLES / name)
    assert job.subscriptions
    assert job.topics


def test_the_paper_has_its_overlay_and_its_brokers(tmp_path: Path) -> None:
    text = """
    subscriptions = { workload = "stock", count = 5, window = ["2 seconds", "1 second"], regular_share = 0.2 }
    overlay = { preset = "debs14" }
    source = { format = "generated", workload = "stock", events = 100, start = "2024-01-01" }
    """
    job = load_configuration(written(tmp_path, text))
    assert isinstance(job.source, Generated)
    assert job.source.brokers == debs14_links().publishers
    assert job.source.start_us == 1_704_067_200_000_000
    assert list(job.topics) == ["stock"]  # which the workload knows
    assert job.drawn is not None
    assert {one.at for one in job.drawn.draw()} <= set(debs14_links().subscribers)


def test_a_data_set_is_a_source(tmp_path: Path) -> None:
    job = load_configuration(written(tmp_path, 'source = { format = "aarhus", path = "data" }'))
    assert isinstance(job.source, Recorded)
    assert (job.source.folder, list(job.topics)) == (str(tmp_path / "data"), ["traffic"])


def test_where_there_is_one_topic_or_broker_files_need_not_say_it(tmp_path: Path) -> None:
    text = 'source = { format = "json", path = "x" }\n[topics.weather]\ncelsius = "float"'
    job = load_configuration(written(tmp_path, text))
    assert isinstance(job.source, Files)
    assert job.source.topic == FromColumn("topic", "weather")
    assert job.source.broker == FromColumn("broker", "b0")


def test_a_running_overlay_has_limits_leases_and_durability(tmp_path: Path) -> None:
    text = """
    [live]
    durability = "disk"
    client_lease = "5 seconds"
    [limits]
    events_per_second = 10
    topics = 3
    """
    job = load_configuration(written(tmp_path, text))
    assert job.live == Live(durability="disk", client_lease="5 seconds", client_retention="7 days")
    assert job.limits == ClientLimits(events_per_second=10, topics=3)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('live = { durability = "ram" }', 'live.durability is \'ram\'; accepted is "process" or "disk"'),
        ('live = { client_lease = "0 seconds" }', "live.client_lease is '0 seconds'; accepted is a duration"),
        ("live = { lease = 1 }", "live.lease is unknown; accepted are durability, client_lease, client_retention"),
        ("limits = { topics = 0 }", "limits.topics is 0; accepted is a whole number from 1 on"),
        ("limits = { event = 1 }", "limits.event is unknown; accepted are request_bytes, events_per_second"),
    ],
)
def test_what_a_running_overlay_cannot_have_is_refused(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(CatchmentError) as caught:
        load_configuration(written(tmp_path, text))
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            ("[sink]", "[snik]"),
            "job.toml: snik is unknown; accepted are topics, overlay, source, subscriptions, sink, opt",
        ),
        (("lateness =", "latenes ="), "options.latenes is unknown; accepted are checkpoint, idle_after, lateness"),
        (("event_id =", "id ="), "source.id is unknown; accepted are format, columns, path, event_id"),
        (('"float"', '"flaot"'), "topics.weather: attribute 'celsius' has type flaot; accepted are bool, int, float"),
        (('note = "string"', 'ts = "string"'), "topics.weather.ts is no attribute; every event has event_id, topic"),
        (('note = "string"', "note = 3"), "topics.weather: attribute 'note' has type 3; accepted are bool, int"),
        (
            ('[["hill", "town"]]', '[["hill", "town"], ["a", "b"]]'),
            "overlay: the overlay is in 2 pieces: a, b and hill",
        ),
        (('[["hill", "town"]]', '"hill-town"'), "overlay.links is 'hill-town'; accepted is a list of pairs"),
        (('[["hill", "town"]]', '[["hill"]]'), "overlay: ['hill'] is no link; accepted is a pair of broker ids"),
        (("links =", 'preset = "debs14"\nlinks ='), "overlay has preset, links; accepted is one of links"),
        (('at = "town"', 'at = "city"'), "subscription 'wind': there is no broker 'city'; known are hill, town"),
        (('at = "town"', ""), "subscription 'wind': at is missing; accepted are hill, town"),
        (("FROM weather", "FROM whether"), "subscription 'wind': unknown topic 'whether'; known are weather"),
        (
            ("max(celsius)", "max(kelvin)"),
            "topic 'weather' has no attribute 'kelvin'; it has broker, celsius, note, ts",
        ),
        (
            ("max(celsius)", "avg(note)"),
            "avg(note) asks for avg of an attribute of type string; accepted are int, float",
        ),
        (("'1 minute'", "'0 minutes'"), "the window's size is 0 microseconds; accepted is a positive duration"),
        (
            ("SELECT max", "SELECT DISTINCT max"),
            "subscriptions[0]: subscription 'wind': SELECT DISTINCT is not accepted",
        ),
        (('name = "wind"', 'nome = "wind"'), "subscriptions[0]: nome is unknown; accepted are name, at, sql"),
        (('name = "wind"', ""), "subscriptions[0]: name is missing; accepted are name, at, sql"),
        (('format = "csv"', 'format = "xml"'), 'source.format is \'xml\'; accepted is "parquet" or "csv" or "json"'),
        (('path = "in/*.csv"', ""), "source.path is missing; accepted is a string"),
        (('topic = "weather"', 'topic = "tides"'), "source.topic is 'tides'; accepted are weather"),
        (('{ column = "station" }', '"city"'), "source.broker: there is no broker 'city'; known are hill, town"),
        (
            ('{ column = "station" }', "{ row = 1 }"),
            "source.broker is {'row': 1}; accepted is the broker of all rows, or",
        ),
        (("max_files_per_trigger = 2", "max_files_per_trigger = 0"), "max_files_per_trigger is 0; accepted is a whole"),
        (('"10 seconds"', '"soon"'), "options.lateness is 'soon'; accepted is a duration, as in \"10 seconds\""),
        (('"10 seconds"', '"-1 second"'), "options.lateness is '-1 second'; accepted is a duration"),
        (('"revisions"', '"often"'), 'options.delivery is \'often\'; accepted is "final" or "revisions"'),
        (('placement = "late"', 'placement = "lazy"'), 'options.placement is \'lazy\'; accepted is "late" or "early"'),
        (("deduplicate = true", "deduplicate = 1"), "options.deduplicate is 1; accepted is true or false"),
        (
            ('"available now"', '"now"'),
            'options.trigger is \'now\'; accepted is a duration, as in "10 seconds", or "avail',
        ),
        (("[overlay]", "[overlay"), "job.toml is no TOML: "),
    ],
)
def test_a_mistake_is_named_with_what_is_accepted(change: tuple[str, str], message: str, tmp_path: Path) -> None:
    assert change[0] in WHOLE
    with pytest.raises(CatchmentError) as raised:
        load_configuration(written(tmp_path, WHOLE.replace(*change, 1)))
    assert message in str(raised.value)
    assert str(tmp_path / "job.toml") in str(raised.value)
    assert "\n" not in str(raised.value)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(CatchmentError, match=r"cannot read .*job.toml: No such file or directory; accepted is a TOML"):
        load_configuration(tmp_path / "job.toml")


# Files of subscriptions --------------------------------------------------------------------------------------------

GOOD = {
    "a.sql": "-- a note\n-- name: one\n-- at: b1\nSELECT *\n  FROM t -- all\n  WHERE x < 1;\n\n"
    "-- name: two\nSELECT * FROM t;\n",
    "a.jsonl": '{"name": "one", "at": "b1", "sql": "SELECT * FROM t WHERE x < 1"}\n\n'
    '{"name": "two", "sql": "SELECT * FROM t"}\n',
    "a.csv": 'name,at,sql\none,b1,"SELECT *\nFROM t WHERE x < 1"\ntwo,,SELECT * FROM t\n',
}


@pytest.mark.parametrize("name", GOOD)
def test_subscriptions_are_read_from_every_kind_of_file(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(GOOD[name])
    one, two = read_subscriptions(tmp_path / name)
    assert (one.name, one.at, two.name, two.at) == ("one", "b1", "two", None)
    assert str(one.query.where) != str(two.query.where)


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.sql", "SELECT * FROM t;", "a.sql:1: no name; accepted is a line `-- name: …` before the SQL"),
        ("a.sql", "-- name: a\nSELECT * FROM t", "a.sql:2: the statement does not end; accepted is a ; at its end"),
        ("a.sql", "-- name: a\nSELECT 1\n-- name: b\nSELECT 2;", "a.sql:2: the statement does not end"),
        ("a.sql", "-- name: a\nDELETE FROM t;", "a.sql:2: subscription 'a': DELETE is no SELECT"),
        ("a.sql", "-- name: a\n", "a has no statement after it"),
        ("a.jsonl", "{]", "a.jsonl:1: broken JSON"),
        ("a.jsonl", "[]", "a.jsonl:1: [] is no object; accepted are name, at, sql"),
        ("a.jsonl", '{"name": "a"}', "a.jsonl:1: sql is missing"),
        ("a.csv", "nome,sql\na,b\n", "has the columns nome, sql; accepted are name, at, sql"),
        ("a.csv", "name,sql\na\n", "a.csv:2: not as many fields as the header has"),
        ("a.yaml", "", "is no file of subscriptions; accepted are .csv, .json, .jsonl"),
        (
            "a.jsonl",
            '{"name": "a", "sql": "SELECT * FROM t"}\n' * 2,
            "two subscriptions are named 'a'; each name is accepted once",
        ),
    ],
)
def test_a_mistake_in_a_file_of_subscriptions_is_named(name: str, text: str, message: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(CatchmentError) as raised:
        read_subscriptions(tmp_path / name)
    assert message in str(raised.value)
    assert str(tmp_path / name) in str(raised.value)


OVERLAY_SOURCE = """
[topics.weather]
celsius = "float"

[overlay]
links = [["hill", "town"]]

[[subscriptions]]
name = "wind"
at = "town"
plane = "spark"
sql = "SELECT max(celsius) FROM weather GROUP BY window(ts, '1 minute')"

[[subscriptions]]
name = "all"
at = "hill"
sql = "SELECT * FROM weather"

[source]
format = "overlay"
server = "nats://127.0.0.1:4222"
since = "2 hours"
max_rows_per_batch = 500
fail_on_data_loss = false

[history]
keep = "3 days"
bytes_max = 50_000_000
"""


def test_a_running_overlay_is_a_source_and_each_subscription_has_a_plane(tmp_path: Path) -> None:
    file = tmp_path / "overlay.toml"
    file.write_text(OVERLAY_SOURCE)
    job = load_configuration(file)
    assert [one.plane for one in job.subscriptions] == ["spark", "brokers"]
    assert [one.name for one in answered_here(job, job.subscriptions)] == ["wind"]
    assert isinstance(job.source, FromOverlay)
    assert job.source.options == {
        "server": "nats://127.0.0.1:4222", "topics": "weather", "since": "2 hours", "maxRowsPerBatch": "500",
        "failOnDataLoss": "false",
    }  # fmt: skip
    assert described(job).history == Kept(keep_us=3 * 86_400_000_000, bytes_max=50_000_000)
    file.write_text(OVERLAY_SOURCE.partition("[history]")[0])
    assert described(load_configuration(file)).history == Kept(keep_us=7 * 86_400_000_000)
    file.write_text(OVERLAY_SOURCE.partition("[history]")[0].replace('plane = "spark"', ""))
    assert described(load_configuration(file)).history is None


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (('plane = "spark"', 'plane = "moon"'), "plane is 'moon'; accepted are 'brokers' and 'spark'"),
        (('since = "2 hours"', 'since = "soon"'), "source.since: since is 'soon'; accepted are a time"),
        (('server = "nats://127.0.0.1:4222"', ""), "source.server is missing"),
        (('keep = "3 days"', 'keep = "soon"'), "history.keep is 'soon'; accepted is a duration"),
        (('keep = "3 days"', 'keep = "0 days"'), "history: a history reaches back 0"),
        (("bytes_max = 50_000_000", "bytes_max = 5"), "history: a history takes 5 bytes; accepted are 4000000 or more"),
    ],
)
def test_a_mistake_about_a_running_overlay_is_named(change: tuple[str, str], message: str, tmp_path: Path) -> None:
    file = tmp_path / "overlay.toml"
    file.write_text(OVERLAY_SOURCE.replace(*change))
    with pytest.raises(CatchmentError) as raised:
        load_configuration(file)
    assert message in str(raised.value)
    assert str(file) in str(raised.value)
