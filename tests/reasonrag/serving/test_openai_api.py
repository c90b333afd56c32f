"""The server side of chat completions; what it answers is shown by the servers that use it."""

from __future__ import annotations

import orjson
import pytest
from pydantic import ValidationError

from reasonrag.serving.openai_api import ChatCompletionRequest


def test_tools_are_refused_as_no_prompt_would_show_them() -> None:
    body = {"messages": [{"role": "user", "content": "hello"}], "tools": [{"type": "function"}]}
    with pytest.raises(ValueError, match="tools: this server renders no tools; ask without them"):
        ChatCompletionRequest.read(orjson.dumps(body))


@pytest.mark.parametrize("field", ["messages", "stop"])
def test_a_body_of_wrong_items_is_refused_for_the_first(field: str) -> None:
    """One of 8 MB took 5 GB and 18 seconds, in which nothing else was answered."""
    body = {"messages": [{"role": "user", "content": "hello"}]} | {field: [{}] * 1000}
    with pytest.raises(ValueError, match=field) as refused:
        ChatCompletionRequest.read(orjson.dumps(body))
    assert isinstance(refused.value.__cause__, ValidationError)
    assert refused.value.__cause__.error_count() < 5
