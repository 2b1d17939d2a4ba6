"""What a rank does for a notebook: run its cells, call its functions, take and give variables.

These functions run on the engines, never raise, and answer with a plain dictionary, so that an
answer arrives whatever the reader's code does.
"""

from __future__ import annotations

import ast
import contextlib
import inspect
import io
import signal
import sys
import time
import tokenize
import traceback
from collections.abc import Callable
from types import CodeType, FrameType, TracebackType
from typing import Any

from tutorial_lib.cluster import output_limit, stacks
from tutorial_lib.cluster.values import encode
from tutorial_lib.distributed import call_site

Answer = dict[str, Any]

_class_files: dict[str, str] = {}  # where the cells' classes are defined
_python_getfile = inspect.getfile


def run_cell(source: str, number: int, heading: str = "") -> Answer:
    """Run a cell's source in the engine's namespace.

    Args:
        source: As the reader wrote it; IPython's magics and ``!`` work.
        number: The cell's execution count in the notebook, shown in tracebacks.
        heading: The magic's line above the source in the notebook, if there is one: line numbers
            count from it, as the notebook's do.

    Returns:
        An answer with the value of the last expression.
    """
    shell = _shell()
    text = shell.transform_cell(source)  # drops empty lines at the start
    above = f"# {heading}\n" if heading else ""
    above += "\n" * (len(source) - len(source.lstrip("\n")))
    # Registered as a file, so that tracebacks and inspect.getsource find the lines.
    filename = shell.compile.cache(above + text, number, raw_code=above + source)
    call_site.name_cell(filename, number)
    shell.ask_exit = _refuse_to_exit

    def work() -> object:
        tree = _parse(text, filename, above.count("\n"))
        remember_classes(tree, filename)
        statements, expression = _compile(shell, tree, filename, is_silenced(text))
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
            with stacks.working(filename):
                value = work()
        finally:
            shell.events.trigger("post_execute")  # shows open figures, for example
            signal.signal(signal.SIGINT, signal.SIG_IGN)
        result = {"status": "ok", "time": time.time(), **encode(value)}
    except BaseException as error:
        result = {"status": "error", "time": time.time(), **_describe(error, filename)}
    output_limit.finish()
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    return result  # the engine's own handler comes back when the answer is on its way


def _parse(source: str, filename: str, lines_above: int) -> ast.Module:
    """A cell's syntax tree, with its lines counted from the top of the notebook's cell."""
    try:
        return ast.increment_lineno(ast.parse(source, filename), lines_above)
    except SyntaxError as error:
        if error.lineno is not None:
            error.lineno += lines_above
        raise


def _refuse_to_exit() -> None:
    """Stand in for what IPython's ``exit`` does: it would end the rank once the cell is over."""
    raise SystemExit("exit() is not for ranks: ranks.stop() in the notebook ends them")


def _compile(
    shell: Any, tree: ast.Module, filename: str, is_silent: bool
) -> tuple[CodeType | None, CodeType | None]:
    """Compile a cell's statements and, apart, the last expression, whose value is shown."""
    expression = None
    if tree.body and isinstance(tree.body[-1], ast.Expr) and not is_silent:
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
    shown = trace if trace is not None else error.__traceback__
    inner = _innermost(shown)
    # IPython reads each file on the way; for torch's that takes seconds, and helps nobody.
    shown = _without_libraries(shown, filename) or shown
    if _is_interrupt(error) or isinstance(error, _collective_errors()):
        error.__cause__, error.__suppress_context__ = None, True
    line = trace.tb_lineno if trace is not None else None
    is_syntax = isinstance(error, SyntaxError) and trace is None
    if isinstance(error, SyntaxError) and trace is None and error.lineno is not None:
        line = error.lineno
    try:
        shell = _shell()
        if is_syntax:
            lines = shell.SyntaxTB.structured_traceback(type(error), error, [])
        else:
            lines = shell.InteractiveTB.structured_traceback(type(error), error, shown)
    except Exception:
        lines = traceback.format_exception(type(error), error, shown)
    if inner is not None and inner is not _innermost(shown):
        lines = [*lines, f"raised at {call_site.in_words(inner)}, in {inner.f_code.co_qualname}"]
    try:
        message = str(error)
    except Exception as second:
        message = f"<its message can't be shown: {second!r}>"
    return {
        "name": type(error).__name__,
        "message": message,
        "line": line,
        "traceback": list(lines),
        "is_interrupt": _is_interrupt(error),
    }


def _collective_errors() -> tuple[type[BaseException], ...]:
    errors = sys.modules.get("tutorial_lib.distributed.mpi_errors")
    return (errors.CollectiveError,) if errors is not None else ()


def _is_interrupt(error: BaseException) -> bool:
    """Whether Ctrl-C caused an error: torch's C++ renames an interrupt that passes through it."""
    return isinstance(error, KeyboardInterrupt) or (
        isinstance(error, RuntimeError) and "KeyboardInterrupt" in str(error)
    )


def remember_classes(tree: ast.Module, filename: str) -> None:
    """Let ``inspect.getsource`` find the classes of a cell, which Python looks up by module.

    Args:
        tree: The cell.
        filename: Under which its source is registered.
    """
    names = {node.name: filename for node in ast.walk(tree) if isinstance(node, ast.ClassDef)}
    _class_files.update(names)
    if inspect.getfile is not _getfile:
        inspect.getfile = _getfile  # type: ignore[assignment]


def _getfile(value: Any) -> str:
    if isinstance(value, type) and value.__module__ == "__main__":
        with contextlib.suppress(KeyError):
            return _class_files[value.__qualname__.split(".")[0]]
    return _python_getfile(value)


def _reader_part(trace: TracebackType | None, filename: str) -> TracebackType | None:
    """The traceback from the reader's first frame on; None when that isn't in it."""
    while trace is not None and trace.tb_frame.f_code.co_filename != filename:
        trace = trace.tb_next
    return trace


def _without_libraries(trace: TracebackType | None, filename: str) -> TracebackType | None:
    """The traceback's frames that are the reader's, of that file among others."""
    if trace is None:
        return None
    inner = _without_libraries(trace.tb_next, filename)
    own = trace.tb_frame.f_code.co_filename
    if own != filename and call_site.is_library(own):
        return inner
    return TracebackType(inner, trace.tb_frame, trace.tb_lasti, trace.tb_lineno)


def _innermost(trace: TracebackType | None) -> FrameType | None:
    frame = None
    while trace is not None:
        frame, trace = trace.tb_frame, trace.tb_next
    return frame


def _shell() -> Any:
    from IPython import get_ipython

    return get_ipython()
