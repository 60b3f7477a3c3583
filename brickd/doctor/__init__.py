"""Checks of this machine, each with its fix. Facts are collected first and judged afterwards."""
