"""The scripts of ``job``, run by bash in the container.

A job is a folder: ``lock`` (held by every process of the job for life), ``pid`` (process, its start
time, the boot and the start time of the container's first process), ``spec``, ``stdin``, ``out``,
``err``, ``stopping`` (somebody asked it to end), ``rc`` (its exit code, written whole) and
``collected`` (somebody has taken note of its end).
"""

# What all of them need. A container's restart does not change the boot's id, but its first process.
_COMMON = r"""
set -u
dir=$1; shift
started() {
  local s
  { s=$(<"/proc/$1/stat"); } 2>/dev/null || return 1
  set -- ${s##*) }
  case $1 in Z|X) return 1;; esac
  echo "${20}"
}
boot() { echo "$(</proc/sys/kernel/random/boot_id) $(started 1)"; }
held() { ! ( flock -s -n 9 ) 9<"$dir/lock"; }
# Sets state, code and age_s. The exit code is looked for again at the end: the job may write it
# while this looks.
look() {
  local pid start was_boot was_init begun now
  state=missing code=- age_s=0
  { read -r pid start was_boot was_init begun <"$dir/pid"; } 2>/dev/null || return 0
  printf -v now '%(%s)T' -1; age_s=$((now - begun))
  if [ ! -e "$dir/rc" ]; then
    if [ "$(started "$pid")" = "$start" ] || held; then state=running; return 0; fi
  fi
  if [ -e "$dir/rc" ]; then code=$(<"$dir/rc"); state=finished
  elif [ "$was_boot $was_init" != "$(boot)" ]; then state=lost; return 0
  else state=killed; fi
  [ ! -e "$dir/stopping" ] || state=killed
}
tell() { printf 'S %s %s %s\n' "$state" "$code" "$age_s"; }
"""

# Arguments: folder, hash of what is to run, hash of its input, program and arguments. Starts of one
# folder's jobs wait for one another. A job whose end somebody has taken note of makes room for a
# new one; any other one is found and not started again.
START = (
    _COMMON
    + r"""
spec=$1 want=$2 mask=$(umask); shift 2
umask 077  # its input may be nobody else's business; its own files are made as anybody's
mkdir -p -- "${dir%/*}" || exit 73
exec 7>>"${dir%/*}/starting" && flock -w 60 7 || { echo "another start hangs" >&2; exit 75; }
look
if [ "$state" != missing ]; then
  if [ "$state" = running ] || [ ! -e "$dir/collected" ]; then
    [ "$(<"$dir/spec")" = "$spec" ] || { echo "the job there does something else" >&2; exit 74; }
    echo found; exit 0
  fi
  mv -T -- "$dir" "$dir.before-$(date +%s%N)" || exit 73
fi
mkdir -p -- "$dir" && exec 9>>"$dir/lock" && flock -n 9 || exit 73
cat >"$dir/stdin" || exit 73
got=$(sha256sum <"$dir/stdin")
[ "${got%% *}" = "$want" ] || { echo "the input was cut short" >&2; exit 66; }
echo "$spec" >"$dir/spec" && : >>"$dir/out" && : >>"$dir/err" || exit 73
RECOVER_JOB=$dir setsid --fork bash -c "$0" run "$dir" "$mask" "$@" 7>&- </dev/null >/dev/null 2>&1
for ((i = 0; i < 500; i++)); do [ ! -e "$dir/pid" ] || { echo started; exit 0; }; sleep 0.02; done
echo "it did not start within 10 s" >&2; exit 75
"""
)

# The shell that stays: it waits for the command and writes down how it ended. A signal to all of
# the job ends the command; the shell ends by itself after that.
RUN = (
    _COMMON
    + r"""
mask=$1; shift
trap : TERM INT HUP
printf -v now '%(%s)T' -1
echo "$$ $(started $$) $(boot) $now" >"$dir/pid.new" && mv -fT -- "$dir/pid.new" "$dir/pid"
exec <"$dir/stdin" >>"$dir/out" 2>>"$dir/err"
umask "$mask"
{ (exec -- "$@" 2>&3 3>&-); code=$?; } 3>&2 2>/dev/null
echo "$code" >"$dir/rc.new" && sync -- "$dir/rc.new" && mv -fT -- "$dir/rc.new" "$dir/rc"
"""
)

LOOK = _COMMON + "look; tell\n"

# Argument: "keep" or "discard". Somebody has taken note of its end, and of all that it said.
COLLECT = (
    _COMMON
    + r"""
look
case $state.$1 in
  running.*|missing.*) ;;
  finished.discard) tell; rm -rf -- "$dir"; exit;;
  *) : >"$dir/collected";;
esac
tell
"""
)

# Arguments: folder, bytes of out and of err that are known, how long to stay, and the job's age at
# which to leave it (0 = none). Sends frames: a line "O bytes", "E bytes" or "." (nothing new: this
# ends it when nobody listens any more), then the bytes; last the state. The state is looked at
# before the output: what was written before the end is sent before the end.
FOLLOW = (
    _COMMON
    + r"""
declare -A known=([out]=$1 [err]=$2) tag=([out]=O [err]=E)
until_s=$((SECONDS + $3)) oldest_s=$4 pause_s=0.05 quiet=0
exec 8<> <(:)
send() {
  local file=$1 size=$2 bytes
  while [ "$size" -gt "${known[$file]}" ]; do
    bytes=$((size - known[$file])); [ "$bytes" -le 1048576 ] || bytes=1048576
    printf '%s %d\n' "${tag[$file]}" "$bytes" || exit
    tail -c "+$((known[$file] + 1))" -- "$dir/$file" | head -c "$bytes"
    known[$file]=$((known[$file] + bytes)) news=1
  done
}
while :; do
  look; news=0
  if [ "$state" != missing ]; then
    sizes=$(stat -c %s -- "$dir/out" "$dir/err")
    send out "${sizes%%$'\n'*}"; send err "${sizes##*$'\n'}"
  fi
  [ "$state" = running ] && [ "$SECONDS" -lt "$until_s" ] || break
  [ "$oldest_s" = 0 ] || [ "$age_s" -lt "$oldest_s" ] || break
  if [ "$news" = 1 ]; then pause_s=0.05 quiet=0
  else
    quiet=$((quiet + 1)) pause_s=0.4
    [ $((quiet % 10)) != 0 ] || echo . || exit
  fi
  read -r -t "$pause_s" -u 8
done
tell
"""
)

# Arguments: folder, seconds of patience. Everything that carries the job's variable or belongs to
# its session is asked to end, then made to; the shell that writes the exit code comes last.
STOP = (
    _COMMON
    + r"""
grace=$1
look
[ "$state" = running ] || { tell; exit 0; }
touch -- "$dir/stopping"
read -r keeper _ <"$dir/pid"
members() {
  local path pid fields
  grep -lzxF -- "RECOVER_JOB=$dir" /proc/[0-9]*/environ 2>/dev/null | tr -dc '0-9\n'
  for path in /proc/[0-9]*/stat; do
    { fields=$(<"$path"); } 2>/dev/null || continue
    pid=${path//[!0-9]/}; fields=${fields##*) }; set -- $fields
    [ "$4" != "$keeper" ] || [ "$1" = Z ] || echo "$pid"
  done
}
others() { members | sort -u | grep -vx -- "$keeper"; }
kill -TERM -- $(others) 2>/dev/null
for ((i = 0; i < grace * 5; i++)); do
  look; [ "$state" = running ] && others >/dev/null || break
  sleep 0.2
done
for ((i = 0; i < 50; i++)); do
  pids=$(others) || break
  kill -KILL -- $pids 2>/dev/null; sleep 0.1
done
for ((i = 0; i < 20; i++)); do look; [ "$state" = running ] || break; sleep 0.1; done
[ "$state" != running ] || kill -KILL -- "$keeper" 2>/dev/null
for ((i = 0; i < 20; i++)); do look; [ "$state" = running ] || break; sleep 0.1; done
tell
"""
)
