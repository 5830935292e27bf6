"""The broker: a state machine without input or output, and what brokers and clients say to each other."""

from catchment.broker.frames import FRAME_BYTES_MAX, VERSION, Frame, FrameReader, FrameWriter, opened

__all__ = ["FRAME_BYTES_MAX", "VERSION", "Frame", "FrameReader", "FrameWriter", "opened"]
