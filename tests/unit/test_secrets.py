"""What must not travel in a payload is found, and what only sounds like it is left alone."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, strategies as st

from fairlane.core.payload.secrets import REDACTED, find, passes_luhn, redact
from tests.support.leaks import KEYS


def listed(names: str) -> list[str]:
    return names.split()


SENSITIVE_NAMES = listed("""
password Password PASSWORD passwd pwd userPassword user_password user-password new.password password_confirmation
passwordHash password2 dbpassword DB_PASSWORD ｐａｓｓｗｏｒｄ pass_phrase
secret clientSecret client_secret CLIENT-SECRET shared_secret secretKey aws_secret_access_key token access_token
accessToken refreshToken csrf_token authToken apiToken api_key apiKey apikey APIKey X-Api-Key stripe_api_key api_keys
authorization Authorization proxy-authorization bearer cookie Set-Cookie private_key privateKeyPem sshKey encryption_key
credentials userCredentials otp recovery_codes connection_string pass auth
credit_card creditCardNumber card_number cardNumber cvv CVV2 cvc ssn social_security_number
email_body emailBody e_mail_body body_html bodyHtml html_body body_text document_content documentContent
file_content fileContents raw_email attachment_data
db_pass dbPass DB_PASS smtp_pass pw db_pw userpass csrftoken SharedAccessKey
""")

HARMLESS_NAMES = listed("""
token_count token_type tokenType token_expires_at max_tokens total_tokens prompt_tokens next_page_token page_token continuationToken
password_reset_id password_reset_url password_changed_at password_policy has_password is_secret requires_token forgot_password
secret_santa_id secretary tokenizer tokenized_at api_key_id access_key_name private_key_path credential_id card_id card_type
credit_card_id creditcard_last4_digits cookie_banner_version authorization_id authorized author authors auth_provider passenger
passport_country compass bypass pass_count body body_id document_id document_name document_content_type file_name file_size content
key keys primary_key sort_key idempotency_key dedup_key correlation_id message subject html text data keyboard monkey
email email_id to lesson session ssn_verified otp_sent_at pin shipping_pin assn classname mission pwd_age_days
boarding_pass season_pass first_pass passes power pwm
""")


@pytest.mark.requirement("W3")
@pytest.mark.parametrize("name", SENSITIVE_NAMES)
def test_a_sensitive_name_is_found_in_any_case_and_style(name: str) -> None:
    assert [finding.path for finding in find({name: "value-7"})] == [name]
    assert find({"deep": [{"er": {name: "value-7"}}]}), "and however deep it lies"


@pytest.mark.requirement("W3")
@pytest.mark.parametrize("name", HARMLESS_NAMES)
def test_a_name_that_only_sounds_sensitive_is_left_alone(name: str) -> None:
    assert find({name: "value-7"}) == []
    assert find({name: 7}) == []


CARDS = [
    "4111111111111111",
    "4111 1111 1111 1111",
    "4111-1111-1111-1111",
    "5500005555555559",
    "2223003122003222",
    "378282246310005",
    "30569309025904",
    "6011111111111117",
    "3530111333300000",
    "4222222222222",
    "please charge 4111 1111 1111 1111, exp 12/30",
]
TELLING = {
    "a private key": "-----BEGIN RSA PRIVATE KEY-----\nMIIE",
    "a JSON web token": "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.dozjgNryP4J3jVmNHl0w5N",
    "an AWS access key id": "key AKIAIOSFODNN7EXAMPLE here",
    "a provider's access token": "ghp_" + "a1B2" * 9,
    "a bearer token": "Bearer abcdef0123456789abcdef",
    "a password inside a URL": "postgresql://app:hunter2@db.internal/app",
}


@pytest.mark.requirement("W3")
@pytest.mark.parametrize("card", CARDS)
def test_a_card_number_is_found_wherever_it_stands(card: str) -> None:
    assert [finding.why for finding in find({"note": card})] == ["a card number"]
    assert [finding.path for finding in find({"notes": ["ok", [card]]})] == ["notes[1][0]"]


def test_a_card_number_given_as_a_number_is_found_too() -> None:
    assert find({"value": 4111111111111111})


@pytest.mark.requirement("W3")
@pytest.mark.parametrize("why", TELLING)
def test_a_value_that_gives_itself_away_is_found_under_any_name(why: str) -> None:
    assert [finding.why for finding in find({"note": TELLING[why]})] == [why]
    assert find({"some_id": TELLING[why]})


@pytest.mark.requirement("W3")
@pytest.mark.parametrize("key", KEYS)
def test_a_providers_key_is_found_as_a_value_in_a_text_and_as_a_name(key: str) -> None:
    assert len(find({"note": key, "more": [f"use {key}, please"]})) == 2
    assert [finding.path for finding in find({key: 1})] == ["[redacted]"]
    assert redact({key: 1, "a": key})[0] == {REDACTED: REDACTED, "a": REDACTED}


@pytest.mark.requirement("W3")
@pytest.mark.parametrize("key", [*KEYS, "postgresql://app:hunter2-canary@db/shop"])
@pytest.mark.parametrize("around", ["{} " + "x" * 500, "y " * 500 + "{} " + "x" * 500, "-" * 60 + " {}/" + "z" * 100])
def test_a_secret_inside_a_long_name_is_found(key: str, around: str) -> None:
    payload = {"seen": {around.format(key): 1}}
    assert [found.why for found in find(payload)] != []
    assert key not in repr(find(payload)) + repr(redact(payload))


def test_a_name_that_stands_beside_its_value_announces_it_too() -> None:
    pairs = {"headers": [["accept", "*/*"], ["authorization", "x7"]], "env": [["DB_PASSWORD", "x7"]]}
    assert [finding.path for finding in find(pairs)] == ["headers[1][1]", "env[0][1]"]
    named = {"fields": [{"name": "password", "value": "x7"}, {"name": "colour", "value": "red"}]}
    assert [finding.path for finding in find(named)] == ["fields[0].value"]
    assert redact(named)[0]["fields"][0] == {"name": "password", "value": REDACTED}
    assert find({"required": ["password", "name"], "columns": [["a", 1], ["b", 2]], "name": "password"}) == []


@pytest.mark.parametrize(
    "value",
    [
        "4111111111111112",
        "1735557600123",
        "0000000000000000",
        "550e8400-e29b-41d4-a716-446655440000",
        "41111111-1111-1111-1111-111111111111",
        "41111111111111111111111",
        "https://example.test/path?at=user@example.test",
        "https://example.test:8080/x",
        "ey, that is not a token. eyes. open",
        "-----BEGIN PUBLIC KEY-----",
        4111111111111112,
        1735557600123456,
        True,
    ],
)
def test_a_value_that_only_looks_telling_is_left_alone(value: object) -> None:
    assert find({"note": value}) == []


def test_the_numbers_of_ids_are_not_taken_for_cards() -> None:
    assert find({"order_id": "4111111111111111", "orderIds": [4111111111111111]}) == []


def test_a_name_that_means_something_only_with_its_parents_is_found() -> None:
    assert [finding.path for finding in find({"document": {"id": 7, "content": "…"}})] == ["document.content"]
    assert [finding.path for finding in find({"attachments": [{"data": "…"}]})] == ["attachments[0].data"]
    assert [finding.path for finding in find({"to": "a@b.test", "subject": "Hi", "body": "Dear"})] == ["body"]
    assert find({"chart": {"data": [1]}, "body": "the human one"}) == []


@pytest.mark.parametrize("value", [None, True, False, "", [], {}])
def test_a_sensitive_name_with_nothing_in_it_hides_nothing(value: object) -> None:
    assert find({"password": value}) == []


def test_counts_of_tokens_are_measures_but_numeric_secrets_are_secrets() -> None:
    assert find({"tokens": 1500, "token": {"input": 3, "output": 4}}) == []
    assert [finding.path for finding in find({"cvv": 123, "password": 1234, "tokens": ["abc"]})] == [
        "cvv",
        "password",
        "tokens",
    ]


@pytest.mark.requirement("W3")
def test_redacting_replaces_only_what_was_found_and_leaves_the_original() -> None:
    payload = {"user": {"id": 7, "Password": "x"}, "notes": ["fine", "4111 1111 1111 1111"], "token": {"v": "t"}}
    copy, paths = redact(payload)
    assert copy == {"user": {"id": 7, "Password": REDACTED}, "notes": ["fine", REDACTED], "token": REDACTED}
    assert sorted(paths) == ["notes[1]", "token", "user.Password"]
    assert payload["token"] == {"v": "t"}


names = st.sampled_from(SENSITIVE_NAMES + HARMLESS_NAMES) | st.text(max_size=8)
leaves = st.sampled_from([*CARDS, *TELLING.values(), "plain", 5, None, True, 4111111111111111, REDACTED]) | st.text()
documents = st.dictionaries(
    names,
    st.recursive(
        leaves, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=3), max_leaves=8
    ),
    max_size=4,
)


@pytest.mark.requirement("W3")
@given(documents)
def test_what_was_redacted_holds_nothing_sensitive_any_more(payload: dict[str, Any]) -> None:
    copy, paths = redact(payload)
    assert find(copy) == []
    assert len(paths) == len(find(payload))
    assert copy == payload or paths


@given(st.integers(10**11, 10**18))
def test_luhn_catches_every_single_wrong_digit(number: int) -> None:
    body = str(number)
    check = next(digit for digit in "0123456789" if passes_luhn(body + digit))
    assert sum(passes_luhn(body + digit) for digit in "0123456789") == 1
    wrong = str((int(body[0]) + 1) % 10) + body[1:] + check
    assert not passes_luhn(wrong)


def test_a_hostile_payload_is_looked_through_in_no_time() -> None:
    deep: Any = "x"
    for _ in range(50_000):
        deep = [deep]
    assert find({"a": deep, "k" * 1_000_000: "v", "-".join("abc" * 10_000): "v", "t": "4 " * 100_000}) == []
    assert find({"t": "eyJaaaaaaaa-" * 50_000, "u": "aa://b:" * 50_000, "v": "-----BEGIN " * 50_000}) == []
    assert redact({"a": deep})[1] == []
