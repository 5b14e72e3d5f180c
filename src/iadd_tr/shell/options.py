"""Command lines from dataclasses: options without their group's prefix, lists with commas."""

from collections.abc import Callable, Sequence
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin

import tyro

from iadd_tr.shell.errors import UserError

LISTS = tyro.constructors.ConstructorRegistry()


def parse(kind: type, arguments: Sequence[str], name: str, **default: Any) -> Any:
    """The record of one command's options."""
    return tyro.cli(
        kind,
        args=list(arguments),
        prog=f"iadd-tr {name}",
        config=(tyro.conf.OmitArgPrefixes,),
        registry=LISTS,
        **default,
    )


@LISTS.primitive_rule
def _comma_lists(info: tyro.constructors.PrimitiveTypeInfo) -> Any:
    """Every tuple of the settings is written with commas; `none` is no tuple where there may be none."""
    optional = get_origin(info.type) in (Union, UnionType)
    for kind in get_args(info.type) if optional else (info.type,):
        if get_origin(kind) is tuple and get_args(kind)[1:] == (...,):
            item = get_args(kind)[0]
            if item in (float, int, str):
                return _list(item, None if optional else (), "NAME" if item is str else item.__name__.upper())
            if get_origin(item) is Literal:
                return _list(_among(get_args(item)), (), "NAME")
    return None


def _among(names: Sequence[str]) -> Callable[[str], str]:
    def read(word: str) -> str:
        if word not in names:
            raise UserError(f"There is no '{word}'; take one or more of {', '.join(names)}, with commas between them.")
        return word

    return read


def _list(kind: Callable[[str], Any], empty: Any, name: str) -> Any:
    """Items with commas between them."""

    def read(words: list[str]) -> Any:
        return empty if words[0] in ("", "none", "None") else tuple(kind(word) for word in words[0].split(","))

    def write(item: Any) -> str:
        return item if isinstance(item, str) else f"{item:g}"

    return tyro.constructors.PrimitiveConstructorSpec(
        nargs=1,
        metavar=f"{name},…",
        instance_from_str=read,
        is_instance=lambda value: value == empty or isinstance(value, tuple),
        str_from_instance=lambda value: [",".join(map(write, value)) if value else "none"],
    )
