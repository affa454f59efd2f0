#!/bin/sh
# Stands for the interpreter in `make coverage`: with -I and -S nothing would be measured.
for word do
  shift
  case $word in -I | -S) ;; *) set -- "$@" "$word" ;; esac
done
exec "${A4P_PYTHON:-$(dirname "$0")/../.venv/bin/python}" "$@"  # some tests clear the environment
