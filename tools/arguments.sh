# Sourced by the scripts of this folder, whose first comment is their usage: its first line shows the command.

# help_if_asked "$@": prints the usage and ends the script where -h or --help is among the arguments.
help_if_asked() {
  local argument
  for argument in "$@"; do
    if [[ $argument == -h || $argument == --help ]]; then
      awk 'NR > 1 { if (!/^#/) exit; sub(/^# ?/, ""); print }' "tools/${0##*/}"
      exit 0
    fi
  done
}

# refuse_argument ARGUMENT: one line and exit code 2.
refuse_argument() {
  echo "${0##*/}: found '$1', expected $(awk 'NR == 2 { sub(/^# Usage: /, ""); print }' "tools/${0##*/}")" >&2
  exit 2
}

# at_most_arguments COUNT "$@": refuses options, empty arguments and more than COUNT of the others.
at_most_arguments() {
  local most=$1
  shift
  help_if_asked "$@"
  local argument at=0
  for argument in "$@"; do
    at=$((at + 1))
    [[ -n $argument && $argument != -* ]] && ((at <= most)) || refuse_argument "$argument"
  done
}
