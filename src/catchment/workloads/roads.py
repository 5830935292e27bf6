"""A made-up road network of the shape of the Aarhus data: 162 sensors, each on one highway."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

__all__ = ["HIGHWAY_COUNT", "SENSOR_COUNT", "RoadNetwork", "road_network"]

SENSOR_COUNT = 162
HIGHWAY_COUNT = 60

_ROAD_TYPES = ("MOTORWAY", "MAJOR_ROAD", "ROAD", "STREET")
_ROAD_TYPE_SHARES = (0.1, 0.5, 0.25, 0.15)
_NORMAL_SPEEDS = (100.0, 55.0, 42.0, 32.0)
_CITIES = ("Aarhus", "Risskov", "Hinnerup", "Tilst", "Viby", "Hasselager")


@dataclass(frozen=True, slots=True, eq=False)
class RoadNetwork:
    """One entry per sensor; the same in every run, so that subscriptions and events name the same roads."""

    highway: tuple[str, ...]
    segment: tuple[str, ...]
    road_type: tuple[str, ...]
    city: tuple[str, ...]
    highway_index: npt.NDArray[np.int64]
    distance_m: npt.NDArray[np.int64]
    normal_speed: npt.NDArray[np.int64]
    vehicles_mean: npt.NDArray[np.float64]


@lru_cache(maxsize=1)
def road_network() -> RoadNetwork:
    """The network; a few highways have many sensors and most have one or two, as in Aarhus."""
    random = np.random.default_rng(401)
    weights = 1.0 / np.arange(2, HIGHWAY_COUNT + 2)
    extra = random.choice(HIGHWAY_COUNT, SENSOR_COUNT - HIGHWAY_COUNT, p=weights / weights.sum())
    highway = np.sort(np.concatenate([np.arange(HIGHWAY_COUNT), extra]))
    kind = random.choice(len(_ROAD_TYPES), HIGHWAY_COUNT, p=_ROAD_TYPE_SHARES)[highway]
    city = random.integers(0, len(_CITIES), HIGHWAY_COUNT)[highway]
    normal = np.array(_NORMAL_SPEEDS)[kind] * random.normal(1.0, 0.12, SENSOR_COUNT)
    position = np.arange(SENSOR_COUNT) - np.searchsorted(highway, highway)
    return RoadNetwork(
        highway=tuple(str(401 + index) for index in highway),
        segment=tuple(f"{401 + index}-{at}" for index, at in zip(highway, position, strict=True)),
        road_type=tuple(_ROAD_TYPES[index] for index in kind),
        city=tuple(_CITIES[index] for index in city),
        highway_index=highway,
        distance_m=np.clip(random.lognormal(6.7, 0.5, SENSOR_COUNT), 320, 6_700).astype(np.int64),
        normal_speed=np.rint(normal).astype(np.int64),
        vehicles_mean=np.clip(random.lognormal(1.2, 0.8, SENSOR_COUNT), 0.3, 30.0),
    )
