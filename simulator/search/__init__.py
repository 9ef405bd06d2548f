"""Searches over many simulations: capacities, token budgets, comparisons."""

from simulator.search.budget import BudgetSearch, find_budget
from simulator.search.budget_at_rate import LoadSearch, find_budget_at_rate
from simulator.search.capacity import Capacity, find_capacity
from simulator.search.comparison import Comparison, compare
from simulator.search.effort import Effort

__all__ = [
    "BudgetSearch",
    "Capacity",
    "Comparison",
    "Effort",
    "LoadSearch",
    "compare",
    "find_budget",
    "find_budget_at_rate",
    "find_capacity",
]
