"""One file a measured system: how it is loaded in a process and asked for rows.

An adapter imports its system inside functions, and of Hotbed only what needs nothing but the
standard library and numpy (Hotbed's own adapter excepted), since it runs under the interpreter and
among the packages of the system it measures.
"""
