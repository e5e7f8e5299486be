"""The stores whose pages a server serves: those that runs have named, from its own database."""

from __future__ import annotations

from typing import Any

from prefect.server import models
from prefect.server.database.dependencies import provide_database_interface
from prefect.server.schemas.filters import VariableFilter, VariableFilterName

from podline.tasks.addresses import STORE, Known, deployment_variable, is_key, known, store_variable


async def named(key: str) -> Known | None:
    """The store of a key; None if no run has named it."""
    return known(await _variable(store_variable(key))) if is_key(key) else None


async def key_of_deployment(name: str) -> str:
    """The key of the store that a deployment's runs used last; empty if none has named one."""
    found = await _variable(deployment_variable(name))
    return found if is_key(found) else ""


async def all_named() -> dict[str, Known]:
    """Every store that runs have named, by its key."""
    database = provide_database_interface()
    ours = VariableFilter(name=VariableFilterName(like_=STORE))
    async with database.session_context() as session:
        found = await models.variables.read_variables(session, variable_filter=ours)
    stores = {one.name.removeprefix(STORE): known(one.value) for one in found}
    return {key: store for key, store in stores.items() if store and is_key(key)}


async def _variable(name: str) -> Any:
    database = provide_database_interface()
    async with database.session_context() as session:
        found = await models.variables.read_variable_by_name(session, name=name)
    return found.value if found else None
