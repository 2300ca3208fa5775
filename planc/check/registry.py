"""The rules of the checker, found by importing the modules of `planc.check.rules`."""

from functools import cache
from importlib import import_module
from pkgutil import iter_modules

from planc.check import rules as package
from planc.check.rule import Rule


@cache
def all_rules() -> tuple[Rule, ...]:
    """One instance of every rule, by code."""
    modules = [import_module(f"{package.__name__}.{info.name}") for info in iter_modules(package.__path__)]
    classes = {
        value
        for module in modules
        for value in vars(module).values()
        if isinstance(value, type) and issubclass(value, Rule) and value.__module__ == module.__name__
    }
    return tuple(sorted((cls() for cls in classes if "code" in vars(cls)), key=lambda rule: rule.code.code))
