"""A silenced rule: what people hear during the silence, and what when it is over."""

from __future__ import annotations

import logging

import hypothesis.strategies as st
import pytest
from hypothesis import given

from fairlane.core.breaker import BreakerPolicy
from fairlane.core.ops import Alert, ReadAlerts, Report, SilenceAlerts
from tests.alerts.post import Post

FIRED, RESOLVED = "alert_fired breaker_open stripe", "alert_resolved breaker_open stripe"


def silence(post: Post, for_s: float) -> None:
    post.app.runtime.store.run(SilenceAlerts(rule="breaker_open", for_s=for_s, by="dana", notes="known"))


def break_(post: Post) -> None:
    post.app.runtime.store.run(Report(name="stripe", policy=BreakerPolicy(threshold=1), failures=1))


def mend(post: Post) -> None:
    post.app.breakers.reset("stripe")


def kept(post: Post) -> Alert:
    [alert] = post.app.runtime.store.run(ReadAlerts()).alerts
    return alert


def test_what_begins_to_fire_during_a_silence_is_kept_and_told_to_nobody(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="fairlane.alerts")
    post = Post()
    silence(post, 3600)
    break_(post)
    assert post.steps(600) == []
    assert (kept(post).state, kept(post).told_at) == ("firing", None)
    assert caplog.text == ""


@pytest.mark.parametrize("by_hand", [False, True], ids=["its time is over", "ended by hand"])
def test_what_still_fires_when_a_silence_ends_is_told_then_and_once(by_hand: bool) -> None:
    post = Post()
    silence(post, 3600)
    break_(post)
    post.step()
    began = post.clock.now()
    if by_hand:
        silence(post, 0)
    else:
        assert post.steps(3570) == []
    assert post.step() == [FIRED]
    assert (kept(post).fired_at, kept(post).told_at) == (began, post.clock.now())
    assert post.steps(600) == []
    mend(post)
    assert post.steps(90) == [RESOLVED]


def test_what_fired_and_was_over_within_a_silence_is_never_told() -> None:
    post = Post()
    silence(post, 3600)
    break_(post)
    post.steps(60)
    mend(post)
    assert post.steps(90) == []
    assert kept(post).state == "resolved"
    assert post.steps(3600) == []


def test_what_is_right_again_when_a_silence_ends_is_not_told_though_it_does_not_count_as_over_yet() -> None:
    post = Post()
    silence(post, 60)
    break_(post)
    post.steps(30)
    mend(post)
    assert post.steps(45) == []
    assert kept(post).state == "firing"
    assert post.steps(600) == []


def test_the_end_of_what_people_know_of_is_told_at_once_also_during_a_silence() -> None:
    post = Post()
    break_(post)
    assert post.step() == [FIRED]
    silence(post, 3600)
    mend(post)
    assert post.steps(90) == [RESOLVED]
    break_(post)
    assert post.steps(120) == [], "that is news, and the rule is silenced"
    mend(post)
    assert post.steps(3600) == []


def test_a_message_lost_with_whoever_was_to_tell_it_when_a_silence_ended_is_made_again() -> None:
    webhooks = {"pager": {"url": "https://hooks.test/", "secret": "s" * 16}}
    post = Post(alerts={"webhooks": webhooks})
    silence(post, 600)
    break_(post)
    post.steps(570)

    async def die(messages: object) -> None:
        raise KeyboardInterrupt

    post.duty._sinks.send = die  # type: ignore[method-assign,assignment]
    post.clock.advance(30)
    with pytest.raises(KeyboardInterrupt):
        post.step()
    assert post.app.jobs.list(type="fairlane.webhook").jobs == ()
    heir = Post(post.store, post.clock, alerts={"webhooks": webhooks})
    for _ in range(10):
        heir.step()
    assert len(heir.app.jobs.list(type="fairlane.webhook").jobs) == 1


@given(st.lists(st.sampled_from(["break", "mend", "silence", "speak", "look", "look", "wait"]), max_size=30))
def test_people_hear_fired_and_resolved_in_turn_whatever_is_silenced(story: list[str]) -> None:
    post, told, is_broken = Post(), list[str](), False
    for word in story:
        match word:
            case "break":
                break_(post)
                is_broken = True
            case "mend":
                mend(post)
                is_broken = False
            case "silence" | "speak":
                silence(post, 3600 if word == "silence" else 0)
            case _:
                told += post.steps(15 if word == "look" else 90)
    silence(post, 0)
    told += post.steps(120)
    assert told == ([FIRED, RESOLVED] * 20)[: len(told)]
    assert bool(told and told[-1] == FIRED) == is_broken, "once nothing is silenced people know how it is"
