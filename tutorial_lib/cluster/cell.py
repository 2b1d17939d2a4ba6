"""What a rank does for a notebook: run its cells, call its functions, take and give variables.

These functions run on the engines, never raise, and answer with a plain dictionary, so that an
answer arrives whatever the reader's code does.
"""

from __future__ import annotations

import ast
import io
import signal
import sys
import time
import tokenize
import traceback
from collections.abc import Callable
from types import CodeType, TracebackType
from typing import Any

from tutorial_lib.cluster.values import encode

Answer = dict[str, Any]


def run_cell(source: str, number: int) -> Answer:
    """Run a cell's source in the engine's namespace.

    Args:
        source: As the reader wrote it; IPython's magics and ``!`` work.
        number: The cell's execution count in the notebook, shown in tracebacks.

    Returns:
        An answer with the value of the last expression.
    """
    shell = _shell()
    # Registered as a file, so that tracebacks and inspect.getsource find the lines.
    transformed = shell.transform_cell(source)
    filename = shell.compile.cache(transformed, number, raw_code=source)

    def work() -> object:
        statements, expression = _compile(shell, transformed, filename)
        if statements is not None:
            exec(statements, shell.user_ns)
        return eval(expression, shell.user_ns) if expression is not None else None

    return answer(work, filename)


def call(function: Callable[..., object], arguments: tuple[object, ...]) -> Answer:
    """Call a function.

    Args:
        function: Of a module, or of the notebook.
        arguments: For it.

    Returns:
        An answer with what it returns.
    """
    code = getattr(function, "__code__", None)
    return answer(lambda: function(*arguments), code.co_filename if code is not None else "")


def push(variables: dict[str, object]) -> Answer:
    """Set variables in the engine's namespace.

    Args:
        variables: By name.
    """
    return answer(lambda: _shell().user_ns.update(variables))


def pull(expression: str) -> Answer:
    """Read a variable, or the value of an expression, from the engine's namespace.

    Args:
        expression: For example the variable's name.
    """
    return answer(lambda: eval(expression, _shell().user_ns), "<string>")


def answer(work: Callable[[], object], filename: str = "") -> Answer:
    """Do some work that Ctrl-C can interrupt, and make an answer of what comes of it.

    Args:
        work: To do.
        filename: Where the reader's own code is, to leave out the frames around it.

    Returns:
        "status", "time" of the end in seconds since the epoch, and the packed value or the
        description of the error.
    """
    shell = _shell()
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        try:
            shell.events.trigger("pre_execute")
            value = work()
            shell.events.trigger("post_execute")  # shows open figures, for example
        finally:
            signal.signal(signal.SIGINT, signal.SIG_IGN)
        result = {"status": "ok", "time": time.time(), **encode(value)}
    except BaseException as error:
        result = {"status": "error", "time": time.time(), **_describe(error, filename)}
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    return result  # the engine's own handler comes back when the answer is on its way


def _compile(shell: Any, source: str, filename: str) -> tuple[CodeType | None, CodeType | None]:
    """Compile a cell's statements and, apart, the last expression, whose value is shown."""
    tree = ast.parse(source, filename)
    expression = None
    if tree.body and isinstance(tree.body[-1], ast.Expr) and not is_silenced(source):
        last = tree.body.pop()
        assert isinstance(last, ast.Expr)
        expression = shell.compile(ast.Expression(last.value), filename, "eval")
    statements = shell.compile(tree, filename, "exec") if tree.body else None
    return statements, expression


def is_silenced(source: str) -> bool:
    """Whether a cell ends with a semicolon, so that its last value isn't wanted.

    Args:
        source: Of the cell; valid Python.
    """
    ignored = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.DEDENT, tokenize.ENDMARKER}
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    last = ""
    for token in tokens:
        if token.type not in ignored:
            last = token.string
    return last == ";"


def _describe(error: BaseException, filename: str) -> Answer:
    """An error's name, message, line in the reader's code, and traceback from there on."""
    trace = _reader_part(error.__traceback__, filename)
    is_syntax = isinstance(error, SyntaxError) and trace is None
    shown = trace if trace is not None else error.__traceback__
    try:
        shell = _shell()
        if is_syntax:
            lines = shell.SyntaxTB.structured_traceback(type(error), error, [])
        else:
            lines = shell.InteractiveTB.structured_traceback(type(error), error, shown)
    except Exception:
        lines = traceback.format_exception(type(error), error, shown)
    try:
        message = str(error)
    except Exception as second:
        message = f"<its message can't be shown: {second!r}>"
    return {
        "name": type(error).__name__,
        "message": message,
        "line": getattr(error, "lineno", None) if is_syntax else trace and trace.tb_lineno,
        "traceback": list(lines),
        "is_interrupt": isinstance(error, KeyboardInterrupt),
    }


def _reader_part(trace: TracebackType | None, filename: str) -> TracebackType | None:
    """The traceback from the reader's first frame on; None when that isn't in it."""
    while trace is not None and trace.tb_frame.f_code.co_filename != filename:
        trace = trace.tb_next
    return trace


def _shell() -> Any:
    from IPython import get_ipython

    return get_ipython()
