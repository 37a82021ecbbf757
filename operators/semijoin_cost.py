"""What the two ways to ship a stream cost: the formulas of the semijoin paper, and nothing else.

T. Tran, B. S. Lee, M. W. Bovee: Why Not Semijoins for Streams, When Distributed?  Section 5.1.

                  each s1 of stream 1                     each s2 of stream 2
    SPJ  (1)      the full tuple
    SMJ  (2)      the partial tuple                       with (1 - p2) p1: a request
                  with p2: a request, the full tuple          and |W1| / distinct full tuples

    message    latency + bytes / bytes_per_second; a request is as long as a partial tuple
    p          1 - ((distinct - 1) / distinct) ^ window: the chance that a window has a value

Costs are seconds for each second of the streams, so that a cost of more than 1 says that the link
can't follow.

Where the paper is unclear.  Its generic cost of SPJ has ``C*_ship-ps1``; formula (1) and the
algorithm ship the full tuple, and so do we.  Formula (2) takes the mirror for all partial, though a
value that has been asked for is full, and counts ``p1 |W1| / distinct`` tuples in replies to an s2,
though ``|W1| / distinct`` is the mean already of all s2, those without a reply included.
`smj_steady_transmission` has neither simplification; formula (2) is `smj_transmission`.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from math import exp, expm1, inf, isfinite, log1p

from matwin.storage.errors import InputError


@dataclass(frozen=True, slots=True)
class Statistics:
    """What the costs depend on.

    A window is a number of tuples; one of a duration holds its rate times the duration.
    """

    rate_1: float
    """Tuples a second of the stream that is shipped: λ1."""
    rate_2: float
    """Tuples a second of the stream at the query's node: λ2."""
    full_bytes: float
    partial_bytes: float
    """Bytes of time and join attribute; those of a request as well."""
    latency: float
    """Seconds that every message takes, whatever its length."""
    bytes_per_second: float
    distinct: float
    """Values of the join attribute, all equally frequent."""
    window_1: float
    window_2: float

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if not isfinite(value) or value < 0:
                raise InputError(f"{field.name}={value!r}: give a number from 0 on")
        if not self.bytes_per_second:
            raise InputError("bytes_per_second=0: a link that carries nothing has no cost")

    @property
    def p_1(self) -> float:
        """The chance that a tuple of stream 2 finds a match."""
        return match_probability(self.distinct, self.window_1)

    @property
    def p_2(self) -> float:
        """The chance that a tuple of stream 1 finds a match."""
        return match_probability(self.distinct, self.window_2)

    def message(self, size_bytes: float) -> float:
        """Seconds until a message of so many bytes is there."""
        return self.latency + size_bytes / self.bytes_per_second


@dataclass(frozen=True, slots=True)
class Processing:
    """Seconds of the single steps at a node, as measured."""

    probe_first: float
    """Finding out whether a window has a match."""
    probe_all: float
    """Going through all matches."""
    update: float
    """Inserting a tuple and dropping those that expire."""
    replace: float
    """Putting the full tuples of a reply in the place of partial ones."""


def match_probability(distinct: float, window: float) -> float:
    """The chance that a window of so many tuples has a given value.

    >>> round(match_probability(10_000, 500), 4), match_probability(1, 500)
    (0.0488, 1.0)
    """
    if window <= 0:
        return 0.0
    if distinct <= 1:
        return 1.0
    return -expm1(window * log1p(-1 / distinct))


# ── transmission ─────────────────────────────────────────────────────────────────────────────


def spj_transmission(s: Statistics) -> float:
    """Formula (1): every tuple in full.

    >>> paper = Statistics(500, 500, 100, 10, 0.005, 1000, 10_000, 500, 500)
    >>> round(spj_transmission(paper), 2), round(smj_transmission(paper), 2)
    (52.5, 11.01)
    """
    return s.rate_1 * s.message(s.full_bytes)


def smj_transmission(s: Statistics) -> float:
    """Formula (2): partial tuples, and full ones on request."""
    request = s.message(s.partial_bytes)
    for_one = request + s.message(s.full_bytes)
    for_all = request + s.message(s.window_1 / max(s.distinct, 1.0) * s.full_bytes)
    return s.rate_1 * (s.message(s.partial_bytes) + s.p_2 * for_one) + s.rate_2 * (
        (1 - s.p_2) * s.p_1 * for_all
    )


def smj_steady_transmission(s: Statistics, *, resend: bool = True) -> float:
    """What partial shipping costs on average once the windows are full.

    Say that the last s2 of a value came `a` seconds ago.  While it was in W2, each s1 of the value
    was shipped in full at once, and what was in the mirror before is full because that s2 asked for
    it.  So partial tuples are those of the last ``y = min(a - |W2| / λ2, |W1| / λ1)`` seconds, and
    `a` is exponentially distributed.  Without `resend` a reply has only those; with it, as in the
    paper, all of the value.
    """
    requests, shipped = steady_requests(s, resend=resend)
    request = s.message(s.partial_bytes)
    for_one = request + s.message(s.full_bytes)
    for_all = requests * (request + s.latency) + shipped * s.full_bytes / s.bytes_per_second
    return s.rate_1 * (s.message(s.partial_bytes) + s.p_2 * for_one) + s.rate_2 * for_all


def steady_requests(s: Statistics, *, resend: bool = True) -> tuple[float, float]:
    """Requests for all tuples of a value, and full tuples in the replies, for each s2."""
    if not (s.rate_1 and s.rate_2 and s.window_1):
        return 0.0, 0.0
    each = min(1.0, -log1p(-1 / s.distinct)) if s.distinct > 1 else 1.0
    held = s.window_1 * each  # tuples of the value in W1, on average
    share = s.rate_1 / (s.rate_1 + s.rate_2)
    both = held / share if share else inf  # tuples of the value in both streams meanwhile
    is_none = exp(-both)
    chance = share * (1 - is_none)  # that y seconds have a tuple
    if resend:
        # those of y where there are some; and the older ones, which are there anyway
        alone = share * (1 - share) * (1 - (is_none * (1 + both) if is_none else 0.0))
        shipped = held * chance + alone + held * is_none
    else:
        of_two = both - held  # while a tuple of stream 1 is in its window
        shipped = held * (-expm1(-of_two) / of_two if of_two > 0 else 1.0)  # those of y
    return (1 - s.p_2) * chance, (1 - s.p_2) * shipped


# ── everything ───────────────────────────────────────────────────────────────────────────────


def spj_cost(s: Statistics, steps: Processing) -> float:
    """The unit-time cost of simple shipping: both nodes and the link."""
    local = steps.probe_all + steps.update
    return spj_transmission(s) + (s.rate_1 + s.rate_2) * local


def smj_cost(s: Statistics, steps: Processing) -> float:
    """The unit-time cost of partial shipping; steps count as often as they are taken.

    The paper's generic formula has no term for going through the full tuples of the mirror, its
    else-branch.  It is here, as a step that every s2 with a full match takes.
    """
    first, every, update = steps.probe_first, steps.probe_all, steps.update
    asks = (1 - s.p_2) * s.p_1
    each_1 = update + first + s.p_2 * (first + every) + update
    each_2 = first + asks * (every + steps.replace) + max(s.p_1 - asks, 0.0) * every + update
    return smj_transmission(s) + s.rate_1 * each_1 + s.rate_2 * each_2
