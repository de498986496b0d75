"""Loads settings, and reports errors in them."""

from __future__ import annotations

import difflib
import os
import re
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError
from pydantic_settings import BaseSettings, InitSettingsSource, PydanticBaseSettingsSource, SettingsError

from streamclust_connectors.settings.root import PREFIX, ConfigError, Settings, secrets, sections
from streamclust_connectors.settings.sections import cause

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

SENSITIVE = re.compile("password|secret|token|credential", re.IGNORECASE)


def load(file: str | Path | None = None, overrides: Mapping[str, Any] | None = None) -> Settings:
    """Settings from flags (`overrides`), the environment and a TOML file, in this order; ConfigError if invalid."""
    content = {} if file is None else _read(Path(file))
    _refuse_secrets(content, f"in {file}")
    _refuse_secrets(overrides or {}, "as a flag, which all users of the machine can read")
    _refuse_unknown_sections(os.environ)

    class Configured(Settings):
        @classmethod
        def settings_customise_sources(
            cls,
            settings_cls: type[BaseSettings],
            init_settings: PydanticBaseSettingsSource,
            env_settings: PydanticBaseSettingsSource,
            dotenv_settings: PydanticBaseSettingsSource,
            file_secret_settings: PydanticBaseSettingsSource,
        ) -> tuple[PydanticBaseSettingsSource, ...]:
            return init_settings, env_settings, InitSettingsSource(settings_cls, content)

    try:
        return Configured(**dict(overrides or {}))
    except ValidationError as error:
        raise ConfigError("\n".join(map(_sentence, error.errors(include_url=False)))) from None
    except SettingsError as error:
        raise ConfigError(f"the environment: {error}") from None


def _read(path: Path) -> dict[str, Any]:
    try:
        with path.open("rb") as file:
            return tomllib.load(file)
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} cannot be read: {cause(error)}") from None
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path} is not TOML: {error}") from None


def _refuse_secrets(given: Mapping[str, Any], where: str) -> None:
    for section, values in given.items():
        for name in values if isinstance(values, Mapping) else ():
            if name in secrets(section):
                variable = f"{PREFIX}{section}__{name}".upper()
                raise ConfigError(
                    f"{section}.{name} must not be given {where}; use the environment variable {variable}, or "
                    f"{section}.{name}_file with the path of a file that contains it"
                )


def _refuse_unknown_sections(variables: Mapping[str, str]) -> None:
    """Refuse environment variables with the prefix and an unknown section, which are probably typos."""
    for variable in variables:
        head, nested, _ = variable.upper().removeprefix(PREFIX).partition("__")
        if variable.upper().startswith(PREFIX) and nested and head.lower() not in Settings.model_fields:
            close = difflib.get_close_matches(head.lower(), Settings.model_fields, 1)
            hint = f"; did you mean {PREFIX}{close[0].upper()}__...?" if close else ""
            raise ConfigError(f"{variable}: there is no section {head.lower()}{hint}")


def _sentence(error: ErrorDetails) -> str:
    """Error message that begins with the name of the setting."""
    path = [str(step) for step in error["loc"] if step not in ("bool", "str")]
    where, message = ".".join(path), error["msg"].removeprefix("Value error, ")
    if error["type"] == "extra_forbidden":
        known = list(_names())
        close = difflib.get_close_matches(where, known, 1)
        return f"{where}: there is no such setting" + (f"; did you mean {close[0]}?" if close else "")
    if error["type"] == "value_error":
        return f"{where}: {message}"
    got = error.get("input")
    hidden = SENSITIVE.search(where) or not isinstance(got, (str, int, float))
    return f"{where}: {message[:1].lower()}{message[1:]}" + ("" if hidden else f", got {got!r}")


def _names() -> Iterator[str]:
    """Names of all settings, with their sections."""
    known = sections()
    for section in Settings.model_fields:
        if section in known:
            yield from (f"{section}.{name}" for name in known[section].model_fields)
        else:
            yield section
