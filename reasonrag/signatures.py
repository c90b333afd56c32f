"""Signatures of the public calls: the settings of a call become the keyword parameters that `help()` and editors show.

Decides which types a caller may pass for a setting, and that a wrong setting is one short error. Knows no call.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Collection
from functools import wraps
from inspect import Parameter
from pathlib import Path
from textwrap import TextWrapper
from typing import Any, TypeVar, cast

from reasonrag.errors import InputError, ReasonragError
from reasonrag.settings import CHANGES, FROM_PATH, Settings, arguments, flags_of, shape_of

Call = TypeVar("Call", bound=Callable[..., Any])
_ARGS = "\n\nArgs:\n"
_AS_LINES = TextWrapper(112, "    ", "        ", break_long_words=False, break_on_hyphens=False)
"""A setting in a docstring."""
_FLAG = re.compile(r"reasonrag [a-z].*?(?=[;,`)]|\.\s| and |$)|(?<![\w-])--[a-z-]+", re.S)
"""A flag of this call, or else the command line that a message says to run, whose flags stay."""


def public_call(*models: type[Settings], without: Collection[str] = ()) -> Callable[[Call], Call]:
    """Show the settings of the models in the signature and the docstring of a call that takes `**flags`.

    A setting that is not passed still comes from the environment, reasonrag.toml or the default, which the signature
    shows. Parameters of the call itself win over settings of one name, and the first model over the second. Errors of
    ours leave the call without the errors that caused them, and InputError without its inner frames. Their messages are
    written for the command line: unless that is running, flags in them become the call's parameters.
    """

    def shown(call: Call) -> Call:
        fields = {name: field for model in reversed(models) for name, field in model.model_fields.items()}
        own = inspect.signature(call).parameters
        first = models[0].model_fields if models else {}
        names = [*first, *(name for name in fields if name not in first)]
        names = [name for name in names if name not in own and name not in without]
        said: dict[str, str] = {}

        @wraps(call)
        def called(*args: Any, **flags: Any) -> Any:
            try:
                return call(*args, **flags)
            except ReasonragError as error:
                if arguments.get() is None:
                    error.args = (_FLAG.sub(lambda flag: said.get(flag[0], flag[0]), str(error)),)
                raise (error.with_traceback(None) if isinstance(error, InputError) else error) from None

        given = [each for each in own.values() if each.kind != Parameter.VAR_KEYWORD]
        parameters = [
            Parameter(
                name,
                Parameter.KEYWORD_ONLY,
                default=Parameter.empty if fields[name].is_required() else fields[name].get_default(),
                annotation=accepted(fields[name].annotation),
            )
            for name in names
        ]
        for each in [*given, *parameters]:
            name = each.name
            spoken = (f"`{name}=True`" if isinstance(each.default, bool) else f"`{name}`", f"`{name}=False`")
            said.update(zip(flags_of(name, fields.get(name)), spoken, strict=False))
        vars(called)["__signature__"] = inspect.signature(call).replace(parameters=[*given, *parameters])
        lines = [_AS_LINES.fill(f"{name}: {fields[name].description or ''}") for name in names]
        text = inspect.getdoc(call) or ""
        called.__doc__ = "\n".join([text if _ARGS in f"\n\n{text}" or not lines else f"{text}{_ARGS}".rstrip(), *lines])
        return cast("Call", called)

    return shown


def accepted(annotation: Any) -> str:
    """The type that a caller may pass for a setting of this type, as source text: a path as text too, a list as any
    sequence or as one item, JSON as an object or its text."""
    shape = shape_of(annotation)
    if CHANGES in shape.marks:
        return "Mapping[str, Any] | str | Sequence[str]"
    text = {Path: "str | Path", dict: "str | Mapping[str, Any]"}.get(shape.kind, shape.kind.__name__)
    if shape.words:
        text = f"Literal[{', '.join(map(repr, shape.words))}]"
    elif FROM_PATH in shape.marks:
        text = "str | Path"
    text = f"{text} | Sequence[{text}]" if shape.several else text
    return f"{text} | None" if shape.optional else text
