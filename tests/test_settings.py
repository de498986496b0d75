import inspect
import json
import os
import tomllib
from typing import get_args, get_type_hints

import kafka
import pytest

from streamclust_connectors import registry
from streamclust_connectors.decode import READERS, Fields
from streamclust_connectors.service import Policy
from streamclust_connectors.settings import ConfigError, Settings, load, redacted, to_toml
from streamclust_connectors.settings.sections import (
    DecodeSection,
    KafkaSection,
    SnapshotSection,
)

SECRET = "hunter2-and-more"


@pytest.fixture(autouse=True)
def empty_environment(monkeypatch):
    for name in [name for name in os.environ if name.startswith("STREAMCLUST_")]:
        monkeypatch.delenv(name)


@pytest.fixture
def file(tmp_path):
    def write(text):
        path = tmp_path / "service.toml"
        path.write_text(text)
        return path

    return write


# -------------------------------------------------------------------- precedence


def test_flags_come_before_the_environment_before_the_file_before_defaults(file, monkeypatch):
    path = file('[kafka]\ntopic = "of-the-file"\ngroup_id = "of-the-file"\nclient_id = "of-the-file"\n')
    monkeypatch.setenv("STREAMCLUST_KAFKA__TOPIC", "of-the-environment")
    monkeypatch.setenv("STREAMCLUST_KAFKA__GROUP_ID", "of-the-environment")
    kafka = load(path, {"kafka": {"topic": "of-the-flags"}}).kafka
    assert (kafka.topic, kafka.group_id, kafka.client_id) == (
        "of-the-flags",
        "of-the-environment",
        "of-the-file",
    )
    assert kafka.max_poll_records == KafkaSection().max_poll_records


def test_the_environment_writes_lists_numbers_and_switches_as_text(monkeypatch):
    for name, value in {
        "KAFKA__BOOTSTRAP_SERVERS": "a:1, b:2",
        "KAFKA__OPTIONS__FETCH_MAX_BYTES": "1000",
        "KAFKA__OPTIONS__SSL_CIPHERS": "HIGH",
        "DECODE__FEATURES": '["x", "y"]',
        "ENGINE__HALF_LIFE": "1e4",
        "ENGINE__BACKGROUND": "false",
        "OUTPUT__DLQ": "off",
        "OUTPUT__LIFECYCLE": "changes",
        "ON_DATA_LOSS": "continue",
        "ENGINE__SEED": "",
    }.items():
        monkeypatch.setenv(f"STREAMCLUST_{name}", value)
    settings = load()
    assert settings.kafka.bootstrap_servers == ("a:1", "b:2")
    assert settings.kafka.options == {"fetch_max_bytes": 1000, "ssl_ciphers": "HIGH"}
    assert settings.decode.features == ("x", "y")
    assert (settings.engine.half_life, settings.engine.background, settings.engine.seed) == (1e4, False, 0)
    assert settings.output.dlq is False
    assert settings.on_data_loss == "continue"
    assert settings.topics == {
        "assignments": "streamclust.assignments",
        "lifecycle": "changes",
        "snapshots": "streamclust.snapshots",
    }


@pytest.mark.parametrize("text", ["fine,10", '["fine", 10]', "fine, 10"])
def test_levels_of_assignments_are_words_or_numbers(text, monkeypatch):
    monkeypatch.setenv("STREAMCLUST_OUTPUT__LEVELS", text)
    assert load().output.levels == ("fine", 10)
    monkeypatch.setenv("STREAMCLUST_OUTPUT__LEVELS", "0")
    with pytest.raises(ConfigError, match=r"output\.levels"):
        load()


def test_an_empty_flag_takes_a_setting_back(monkeypatch):
    monkeypatch.setenv("STREAMCLUST_ENGINE__HALF_LIFE", "1000")
    assert load(overrides={"engine": {"half_life": ""}}).engine.half_life is None


# -------------------------------------------------------------------- secrets


def shown(settings):
    return to_toml(settings) + json.dumps(redacted(settings)) + repr(settings) + str(settings)


def test_a_password_is_used_and_never_shown(monkeypatch):
    monkeypatch.setenv("STREAMCLUST_KAFKA__SASL_PLAIN_PASSWORD", SECRET)
    monkeypatch.setenv("STREAMCLUST_KAFKA__OPTIONS__SASL_OAUTH_TOKEN_PROVIDER", SECRET)
    monkeypatch.setenv("STREAMCLUST_KAFKA__OPTIONS__PROXY_URL", f"socks5://me:{SECRET}@proxy:1")
    settings = load()
    assert settings.kafka.shared["sasl_plain_password"] == SECRET
    assert SECRET not in shown(load(overrides={"kafka": {"options": {"a_token": SECRET}}}))
    assert SECRET not in to_toml(settings) + json.dumps(redacted(settings))
    assert "# sasl_plain_password is set" in to_toml(settings)


def test_a_password_may_lie_in_a_file(tmp_path, file, monkeypatch):
    (tmp_path / "password").write_text(f"{SECRET}\n")
    path = file(f'[kafka]\nssl_password_file = "{tmp_path / "password"}"\n')
    settings = load(path)
    assert settings.kafka.shared["ssl_password"] == SECRET
    assert SECRET not in shown(settings)
    monkeypatch.setenv("STREAMCLUST_KAFKA__SASL_PLAIN_PASSWORD_FILE", str(tmp_path / "password"))
    assert load().kafka.shared["sasl_plain_password"] == SECRET
    monkeypatch.setenv("STREAMCLUST_KAFKA__SASL_PLAIN_PASSWORD", SECRET)
    with pytest.raises(ConfigError, match="both given"):
        load()


def test_a_password_in_the_open_is_refused_without_repeating_it(file, tmp_path, monkeypatch):
    path = file(f'[kafka]\nsasl_plain_password = "{SECRET}"\n')
    with pytest.raises(ConfigError, match="STREAMCLUST_KAFKA__SASL_PLAIN_PASSWORD, or") as error:
        load(path)
    assert SECRET not in str(error.value)
    with pytest.raises(ConfigError, match="as a flag") as error:
        load(overrides={"kafka": {"ssl_password": SECRET}})
    assert SECRET not in str(error.value)
    with pytest.raises(ConfigError, match=r"must be set in \[kafka\]") as error:
        load(overrides={"kafka": {"options": {"ssl_password": SECRET}}})
    assert SECRET not in str(error.value)
    monkeypatch.setenv("STREAMCLUST_KAFKA__SSL_PASSWORD_FILE", str(tmp_path / "nowhere"))
    with pytest.raises(ConfigError, match=r"ssl_password_file .*No such file"):
        load()


# -------------------------------------------------------------------- what is wrong


@pytest.mark.parametrize(
    ("overrides", "sentence"),
    [
        ({"engine": {"max_leaves": 0}}, r"engine\.max_leaves: .*greater than or equal to 1, got 0"),
        ({"engine": {"half_life": "nan"}}, r"engine\.half_life: .*finite"),
        ({"engine": {"half_life": -1}}, r"engine\.half_life: .*greater than 0, got -1"),
        ({"engine": {"family": "gausian"}}, r"engine\.family: .*'gaussian'.*got 'gausian'"),
        (
            {"engine": {"famly": "gaussian"}},
            r"engine\.famly: there is no such setting; did you mean engine\.family",
        ),
        ({"on_data_los": "fail"}, "did you mean on_data_loss"),
        ({"kafka": {"bootstrap_servers": ","}}, r"kafka\.bootstrap_servers: .*at least 1"),
        ({"kafka": {"security_protocol": "SASL_SSL"}}, "SASL_SSL needs sasl_mechanism"),
        ({"kafka": {"sasl_mechanism": "PLAIN"}}, "needs a security_protocol"),
        ({"kafka": "events"}, "kafka: input should be"),
        ({"output": {"delivery": "never"}}, "'at-least-once' or 'exactly-once', got 'never'"),
        ({"checkpoint": {"every_seconds": 0}}, r"checkpoint\.every_seconds"),
    ],
)
def test_what_is_wrong_is_named(overrides, sentence):
    with pytest.raises(ConfigError, match=sentence):
        load(overrides=overrides)


def test_every_mistake_is_told_at_once():
    with pytest.raises(ConfigError) as error:
        load(overrides={"engine": {"max_leaves": 0, "seed": -1}})
    assert len(str(error.value).splitlines()) == 2


@pytest.mark.parametrize("name", ["STREAMCLUST_KAFKAA__TOPIC", "STREAMCLUST_KAFKA__TOPIK"])
def test_a_slip_in_the_environment_does_not_go_unnoticed(name, monkeypatch):
    monkeypatch.setenv(name, "events")
    with pytest.raises(ConfigError, match="did you mean"):
        load()


@pytest.mark.parametrize(
    ("content", "sentence"),
    [(b"[kafka", "not TOML"), (b"\xff\xfe", "cannot be read"), (None, "No such file")],
)
def test_a_file_that_cannot_be_read_is_named(tmp_path, content, sentence):
    path = tmp_path / "service.toml"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ConfigError, match=f"service.toml .*{sentence}"):
        load(path)


# -------------------------------------------------------------------- what follows


@pytest.mark.parametrize(
    ("overrides", "source", "output"),
    [
        ({"kafka": {"topic": "events"}}, "kafka", "kafka"),
        ({"source": {"path": "-"}}, "stdin", "stdout"),
        ({"source": {"path": "a.CSV"}}, "csv", "stdout"),
        ({"source": {"path": "a.ndjson"}, "output": {"path": "b"}}, "jsonl", "jsonl"),
        ({"source": {"path": "a.txt", "kind": "parquet"}, "output": {"path": "-"}}, "parquet", "stdout"),
        ({"source": {"kind": "synthetic"}, "kafka": {"topic": "events"}}, "synthetic", "stdout"),
        ({"source": {"path": "a.csv"}, "output": {"kind": "kafka"}}, "csv", "kafka"),
    ],
)
def test_kinds_follow_from_what_is_given(overrides, source, output):
    settings = load(overrides=overrides)
    assert (settings.source_kind, settings.output_kind) == (source, output)


@pytest.mark.parametrize(
    ("overrides", "sentence"),
    [
        ({}, "no source of events is set"),
        ({"source": {"path": "a.txt"}}, "set source.kind"),
        ({"source": {"path": "nowhere.csv"}}, "there is no file nowhere.csv"),
        ({"source": {"kind": "csv"}}, "source.path is not set"),
        ({"source": {"kind": "kafka"}}, "kafka.topic is not set"),
        ({"kafka": {"topic": "events"}}, "checkpoint.directory is not set"),
        ({"source": {"kind": "synthetic"}, "output": {"kind": "jsonl"}}, "output.path is not set"),
        (
            {"source": {"kind": "synthetic"}, "output": {"delivery": "exactly-once"}},
            "needs Kafka as source and output",
        ),
        (
            {"kafka": {"topic": "e"}, "checkpoint": {"directory": "s"}, "output": {"lifecycle": "e"}},
            "is the input topic",
        ),
    ],
)
def test_settings_that_no_service_could_run_with(overrides, sentence):
    with pytest.raises(ConfigError, match=sentence):
        load(overrides=overrides).check()


def test_settings_that_one_could():
    load(overrides={"kafka": {"topic": "events"}, "checkpoint": {"directory": "state"}}).check()


def test_what_is_shown_says_the_same_again(file):
    settings = load(
        overrides={
            "kafka": {"topic": 'a "quoted"\tname\\', "options": {"fetch_max_bytes": 10, "ssl_ciphers": "x"}},
            "decode": {"features": "x,y"},
            "output": {"dlq": False},
            "engine": {"half_life": 2.5},
        }
    )
    text = to_toml(settings)
    assert load(file(text)).model_dump() == settings.model_dump()
    assert set(tomllib.loads(text)) == set(Settings.model_fields)


def test_every_setting_says_what_it_means():
    for line in to_toml(load()).splitlines():
        assert line.strip() != "# None"


# -------------------------------------------------------------------- the same names everywhere


def test_decoding_is_told_what_the_decoder_takes():
    fields = set(inspect.signature(Fields).parameters)
    assert set(DecodeSection.model_fields) == fields | {"format"}
    assert set(get_args(DecodeSection.model_fields["format"].annotation)) == set(READERS) | set(
        registry.READERS
    )


def test_the_policy_takes_the_same_words():
    hints = get_type_hints(Policy)
    for name, annotation in {
        "snapshot_method": SnapshotSection.model_fields["method"].annotation,
        "start": KafkaSection.model_fields["start"].annotation,
        "on_data_loss": Settings.model_fields["on_data_loss"].annotation,
    }.items():
        assert get_args(hints[name]) == get_args(annotation)


def test_what_is_passed_through_is_known_to_the_client(monkeypatch):
    monkeypatch.setenv("STREAMCLUST_KAFKA__SASL_PLAIN_PASSWORD", SECRET)
    monkeypatch.setenv("STREAMCLUST_KAFKA__SSL_PASSWORD", SECRET)
    given = {
        "security_protocol": "SASL_SSL",
        "sasl_mechanism": "SCRAM-SHA-512",
        "sasl_plain_username": "me",
        **dict.fromkeys(("ssl_cafile", "ssl_certfile", "ssl_keyfile"), "x.pem"),
    }
    client = load(overrides={"kafka": given}).kafka.shared
    for kind in (kafka.KafkaConsumer, kafka.KafkaProducer, kafka.KafkaAdminClient):
        assert set(client) <= set(kind.DEFAULT_CONFIG)
    assert given.items() <= client.items()
    assert client["ssl_check_hostname"] is True


@pytest.mark.parametrize(
    ("section", "values", "complaint"),
    [
        ("checkpoint", {}, "set checkpoint.directory"),
        ("decode", {"key": "id"}, "decode.key and per.key are two fields"),
        ("snapshot", {"every_seconds": 5}, "there is no hierarchy of all keys"),
        ("output", {"assignments_per_message": 2}, "assignments_per_message must be 1"),
        ("source", {"kind": "http"}, "per.key cannot learn by HTTP"),
        ("per", {"key": "record-key"}, "'record-key' needs Kafka"),
    ],
)
def test_what_does_not_go_with_a_model_for_each_key(section, values, complaint, tmp_path):
    given = {
        "source": {"kind": "synthetic"},
        "per": {"key": "customer"},
        "checkpoint": {"directory": tmp_path},
    }
    load(overrides=given).check()
    with pytest.raises(ConfigError, match=complaint):
        load(overrides=given | {section: values}).check()


def test_the_key_of_a_model_is_that_of_the_event(tmp_path):
    assert load(overrides={"per": {"key": "customer"}}).key_path == "customer"
    assert load(overrides={"per": {"key": "record-key"}, "decode": {"key": "id"}}).key_path == "id"
    assert load(overrides={"decode": {"key": "id"}}).key_path == "id"
