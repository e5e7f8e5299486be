"""Kinds of task: one class per kind defines all differences, see :class:`podline.kinds.contract.Kind`."""
