# Completion for bash. What there is to complete is asked of --help.
# shellcheck shell=bash

# _sessionfs_reply HEAD BREAK CANDIDATE...: those that go on from what is
# typed, without the part of it that bash takes for words of their own.
_sessionfs_reply()
{
    local head=$1 typed=$2 candidate
    shift 2
    for candidate; do
        [[ $candidate == "$typed"* ]] && COMPREPLY+=("${candidate#"$head"}")
    done
}

_sessionfs()
{
    local line=${COMP_LINE:0:COMP_POINT}
    local word=${line##*[[:blank:]]}
    local cur=${COMP_WORDS[COMP_CWORD]}
    local -a before list command=("$1")
    local head item

    read -ra before <<<"${line%"$word"}"
    [[ $cur == [=:] ]] && cur=
    head=${word%"$cur"}
    [[ ${before[1]:-} == @(run|serve) ]] && command+=("${before[1]}")
    COMPREPLY=()
    case ${before[*]: -1} in
    -o)
        item=${word##*,}
        case $item in
        provider=*)
            mapfile -t list < <("${command[@]}" --help |
                sed -nE '/^Providers:/,$s/^  ([^ ]+).*/provider=\1/p')
            ;;
        gid=*)
            mapfile -t list < <(compgen -g -P gid= -- "${item#*=}")
            ;;
        *=*)
            # The words that --help names, "links=safe|raw"; else directories.
            mapfile -t list < <("${command[@]}" --help |
                sed -nE "s/^  -o (${item%%=*}=)([a-z]+[|][a-z|]+).*/\\1\\2/p" |
                sed -E ':a; s/^([^=]*=)(.*)[|]/\1\2\n\1/; ta')
            if [[ ${#list[@]} -eq 0 ]]; then
                mapfile -t list < <(compgen -d -P "${item%%=*}=" \
                    -- "${item#*=}")
                compopt -o nospace 2>/dev/null
            fi
            ;;
        *)
            mapfile -t list < <("${command[@]}" --help |
                sed -nE 's/^  -o ([^ =]+=?).*/\1/p')
            compopt -o nospace 2>/dev/null
            ;;
        esac
        _sessionfs_reply "$head" "$word" "${list[@]/#/"${word%"$item"}"}"
        return
        ;;
    --config)
        compopt -o filenames 2>/dev/null
        mapfile -t COMPREPLY < <(compgen -f -- "$cur")
        return
        ;;
    -c | --ready-fd | --timeout | --env)
        return
        ;;
    esac
    if [[ $word == -* ]]; then
        # The first column: "  -h, --help", "  --ready-fd N".
        mapfile -t list < <("${command[@]}" --help | grep '^  -' |
            cut -c 2-20 | grep -oE ' --?[A-Za-z-]+' | tr -d ' ' | sort -u)
        _sessionfs_reply "$head" "$word" "${list[@]}"
        return
    fi
    compopt -o filenames 2>/dev/null
    mapfile -t COMPREPLY < <(compgen -d -- "$cur")
    [[ ${#before[@]} -eq 1 ]] && _sessionfs_reply '' "$word" run serve
}

complete -F _sessionfs sessionfs
