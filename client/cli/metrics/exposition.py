"""Figures as text: in Prometheus' format, or in OpenMetrics' if the scraper asks for that."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, TypeAlias

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector, CollectorRegistry

from ....interpreter.metrics.family import Family, Figures, Histogram, MetricKind, bucket_bounds
from ....interpreter.metrics.table import FAMILIES

Metric: TypeAlias = CounterMetricFamily | GaugeMetricFamily | HistogramMetricFamily


class MetricsCollector(Collector):
    """Figures as prometheus-client collects them."""

    def __init__(self, figures: Figures) -> None:
        self._figures = figures

    def collect(self) -> Iterable[Metric]:
        for family in FAMILIES:
            if samples := family.samples(self._figures):
                yield metric_of(family, samples)

    def describe(self) -> Iterator[Metric]:
        """Nothing: names are not registered twice."""
        return iter(())


def metric_of(family: Family, samples: Mapping[tuple[str, ...], Any]) -> Metric:
    """A metric with its samples."""
    if family.kind is MetricKind.HISTOGRAM:
        return histogram_of(family, samples)
    kind = CounterMetricFamily if family.kind is MetricKind.COUNTER else GaugeMetricFamily
    metric = kind(family.name, family.help, labels=family.labels)
    for labels, value in samples.items():
        metric.add_metric(labels, float(value))
    return metric


def histogram_of(family: Family, samples: Mapping[tuple[str, ...], Histogram]) -> HistogramMetricFamily:
    metric = HistogramMetricFamily(family.name, family.help, labels=family.labels)
    for labels, value in samples.items():
        buckets = list(zip(bucket_bounds(), map(float, value.buckets), strict=True))
        metric.add_metric(labels, buckets, value.seconds)
    return metric


def exposition(figures: Figures, accept: str) -> tuple[str, bytes]:
    """The content type that a scraper asks for, and the text."""
    registry = CollectorRegistry()
    registry.register(MetricsCollector(figures))
    encode, kind = choose_encoder(accept)
    return kind, encode(registry)
