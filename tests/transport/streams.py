"""Read the streams of a running overlay."""

from catchment.transport.jetstream import JetStream, Reader, Stored


async def everything(streams: JetStream, stream: str) -> list[Stored]:
    """All that a stream holds now."""
    state = await streams.state(stream)
    assert state is not None
    reader = Reader(streams, stream, 1)
    await reader.start()
    found: list[Stored] = []
    while not found or found[-1].position < state.last:
        found += await reader.read(10_000)
    reader.stop()
    return found
