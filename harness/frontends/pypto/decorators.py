"""The decorators of `pl`: what makes a function, or the methods of a class, a part of a pld program.

Not modelled: what decorators ask of the compiler (`auto_scope`, `split`, …); their options are taken and
have no effect.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from harness.errors import PldRuleError
from harness.frontends.pypto.enums import FunctionType, Level, Role
from harness.frontends.pypto.functions import Function

_KIND_OF_TYPE = {
    FunctionType.Orchestration: "chip", FunctionType.InCore: "incore", FunctionType.AIC: "incore",
    FunctionType.AIV: "incore", FunctionType.Group: "incore", FunctionType.Spmd: "incore",
    FunctionType.Inline: "inline", FunctionType.Opaque: "inline", FunctionType.Host: "host",
}


def _decorator(kind: str) -> Callable[..., Any]:
    def decorate(function: Callable[..., Any] | None = None, **_options: Any) -> Any:
        if function is None:
            return lambda function: Function(function, kind)
        return Function(function, kind)

    decorate.__name__ = kind
    return decorate


class _Jit:
    """`pl.jit` and its attributes."""

    host = staticmethod(_decorator("host"))
    incore = staticmethod(_decorator("incore"))
    inline = staticmethod(_decorator("inline"))
    opaque = staticmethod(_decorator("inline"))

    def __call__(self, function: Callable[..., Any] | None = None, **options: Any) -> Any:
        return _decorator("chip")(function, **options)


jit = _Jit()
inline = _decorator("inline")


def function(
    body: Callable[..., Any] | None = None, *, type: FunctionType = FunctionType.Opaque,
    level: Level | None = None, role: Role | None = None, **_options: Any,
) -> Any:
    """`pl.function`: a function of a program class."""
    if body is None:
        return lambda body: function(body, type=type, level=level, role=role)
    if level is Level.HOST:
        return Function(body, "sub_worker" if role is Role.SubWorker else "host")
    if level is Level.CHIP:
        return Function(body, "chip")
    if level in (Level.CORE_GROUP, Level.AIC, Level.AIV):
        return Function(body, "incore")
    return Function(body, _KIND_OF_TYPE.get(type, "inline"))


class Program:
    """`@pl.program class X`: its functions, and the `self` that they are called with."""

    def __init__(self, made: type) -> None:
        self.name = made.__name__
        self.__doc__ = made.__doc__
        self.owner: Any = object.__new__(made)
        self.functions = {
            name: value for name, value in vars(made).items() if isinstance(value, Function)
        }

    def __repr__(self) -> str:
        return f"pl program {self.name}"

    def entry(self) -> Function:
        """Its host orchestrator; else, for one chip, its chip orchestration. Raises PldRuleError."""
        for kind in ("host", "chip"):
            found = [one for one in self.functions.values() if one.kind == kind]
            if len(found) == 1:
                return found[0]
            if found:
                names = ", ".join(one.name for one in found)
                raise PldRuleError(
                    "several_programs", f"{self.name} has several {kind} functions: {names}"
                )
        raise PldRuleError("several_programs", f"{self.name} has no host orchestrator")


def program(made: type | None = None, **_options: Any) -> Any:
    """`pl.program`."""
    return Program if made is None else Program(made)
