"""The line on a simulated engine and clock, step by step, held against a reference at every one of them."""

import random
from collections import Counter
from dataclasses import dataclass, field

from lane.config import LLAMA_CPP, Config
from lane.estimates import Estimates
from lane.line import Line
from lane.order import Entry
from relay.lane_headers import BACKGROUND, INTERACTIVE

TOKEN_SECONDS = 0.06
CALLERS = ("ann", "bob", "cem", "dot")
CONFIG = Config(
    engine_url="",
    engine=LLAMA_CPP,
    model="m",
    context_length=4096,
    port=0,
    admin_port=0,
    depth_most=24,
    overdue_seconds=60,
)


@dataclass
class Job:
    """What the engine would say to one entry: so many tokens, numbered."""

    entry: Entry
    length: int
    had: list[int] = field(default_factory=list)
    began_at: list[float] = field(default_factory=list)


class Simulation:
    """One line with everything that happens to it; `step` does one thing and checks all."""

    def __init__(self, seed: int, config: Config = CONFIG) -> None:
        self.random, self.now, self.config = random.Random(seed), 1000.0, config  # noqa: S311  no secret
        self.line = Line(config, Estimates(config))
        self.jobs: dict[str, Job] = {}  # who is in the line: the reference of its counts
        self.told: Counter[str] = Counter()
        self.charged: list[tuple[str, float, float]] = []
        self.longest_wait = 0.0
        self.steps = 0
        self._slice_left = 0

    def step(self) -> None:
        """One thing happens."""
        self.steps += 1
        what = self.random.random()
        if what < 0.25:
            self._arrives()
        elif what < 0.28 and self.jobs:
            self._over(self.random.choice(list(self.jobs.values())), "caller_left")
        elif what < 0.2805 and self.line.leaves_at is None:
            self.line.leaving(self.now + self.random.choice((5.0, 40.0, 100.0)))
        else:
            self._runs(self.random.choice((1, 5, 40, 200)))
        self._settles()
        self.check()

    def _arrives(self) -> None:
        stream, interactive = self.random.random() < 0.5, self.random.random() < 0.6
        limit = self.random.choice((16, 150, 1024, 4096))
        entry = Entry(
            id=str(self.steps),
            caller=self.random.choice(CALLERS),
            kind=INTERACTIVE if interactive else BACKGROUND,
            arrived=self.now,
            deadline=self.now + self.random.choice((0.0, 5.0, 30.0, 90.0, 600.0)),
            stream=stream,
            limit=limit,
            prompt_tokens=self.random.choice((5, 100, 4000)),
            sliceable=self.random.random() < 0.5,
        )
        busy = self.line.arrive(entry, self.now)
        self.told["arrived"] += 1
        if busy:
            self.told[busy.why.value] += 1
            assert 1 <= busy.retry_after_seconds <= 120
            assert busy.wait_seconds >= 0
        else:
            self.jobs[entry.id] = Job(entry, min(limit, max(1, int(self.random.lognormvariate(5, 1)))))

    def _runs(self, tokens: int) -> None:
        """The engine works for so many tokens of time."""
        for _ in range(tokens):
            self.now += TOKEN_SECONDS
            running = self.line.running
            if running is None:
                self._settles()
                continue
            job = self.jobs[running.id]
            self.line.decoded(running, 1, self.now)
            job.had.append(len(job.had))
            running.delivered += running.stream
            self._slice_left -= 1
            if len(job.had) == job.length:
                self.line.estimates.length(job.length)
                self.line.estimates.answered(
                    prompt_tokens=running.prompt_tokens, prompt_seconds=0.1, tokens=10, token_seconds=9 * TOKEN_SECONDS
                )
                self._over(job, "answered")
            elif running.sliceable and self._slice_left <= 0:
                if self.line.yields(self.now):
                    self._charge(running)
                    self.line.pause(running, self.now)
                else:
                    self.line.goes_on(self.now)
                    self._slice_left = self.line.estimates.slice_tokens()
            self._settles()

    def _settles(self) -> None:
        """What the service does after everything that happens."""
        for entry in self.line.late(self.now):
            self._over(self.jobs[entry.id], "deadline")
        for entry in self.line.handed_back(self.now):
            self._over(self.jobs[entry.id], "draining")
        at = self.line.leaves_at
        if at is not None and self.now >= at:
            for job in list(self.jobs.values()):
                self._over(job, "draining")
            self.line.resumed()  # another box begins
        waiting = list(self.line.waiting)
        entry = self.line.take(self.now)
        if entry:
            job = self.jobs[entry.id]
            job.began_at.append(self.now)
            self.longest_wait = max(self.longest_wait, self.now - entry.queued)
            self._slice_left = self.line.estimates.slice_tokens()
            self._right(entry, waiting)

    def _right(self, chosen: Entry, waiting: list[Entry]) -> None:
        """The reference: nobody who waited was clearly to be preferred."""
        old = min(
            (entry.queued for entry in waiting if self.now - entry.queued >= self.config.overdue_seconds), default=None
        )
        if old is not None and chosen.queued == old:
            return  # whether it was the turn of the old: `check` bounds it from both sides
        for other in waiting:
            if other.kind == chosen.kind == INTERACTIVE or other.kind == chosen.kind:
                mine, theirs = self._served(chosen.caller), self._served(other.caller)
                assert mine <= theirs + 0.6 or chosen.caller == other.caller, (chosen, other)
                if chosen.caller == other.caller:
                    assert chosen.queued <= other.queued
            else:
                assert chosen.kind == INTERACTIVE, (chosen, other)

    def _served(self, caller: str) -> float:
        half = self.config.served_half_life_seconds
        return sum(seconds * 0.5 ** ((self.now - at) / half) for name, seconds, at in self.charged if name == caller)

    def _charge(self, entry: Entry) -> None:
        if entry.began is not None:
            self.charged = [
                each for each in self.charged if self.now - each[2] < 20 * self.config.served_half_life_seconds
            ]
            self.charged.append((entry.caller, self.now - entry.began, self.now))

    def _over(self, job: Job, how: str) -> None:
        self._charge(job.entry)
        self.line.leave(job.entry, self.now, how)
        self.line.leave(job.entry, self.now, how)  # a second time is none
        self.told[how] += 1
        del self.jobs[job.entry.id]
        assert job.had == list(range(len(job.had)))  # no token lost, none twice
        assert job.entry.decoded == len(job.had)
        if how == "answered":
            assert len(job.had) == job.length
        if job.began_at and not job.had and job.entry.stream:
            assert job.began_at[0] <= job.entry.deadline  # nobody began after it was too late

    def check(self) -> None:
        """What holds after every step."""
        line = self.line
        inside = [*line.waiting, *([line.running] if line.running else [])]
        assert sorted(entry.id for entry in inside) == sorted(self.jobs)
        assert line.running is not None or not line.waiting  # no engine idles beside a waiting request
        assert len(line.waiting) <= self.config.depth_most + 1  # one who paused comes back in
        for entry in line.waiting:
            assert entry.keeps_its_place or self.now < entry.deadline  # no wait beyond its bound
        assert {name: count for name, count in line.counts.items() if name != "paused"} == dict(self.told)
        gone = sum(count for name, count in self.told.items() if name != "arrived")
        assert self.told["arrived"] == gone + len(self.jobs)
