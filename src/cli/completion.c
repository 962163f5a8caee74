/* completion.c: completion scripts for shells, written from the option tables of cli.h
 * (lockstep --help-completion=bash, zsh or fish).
 *
 * A script is a frame that knows the commands, and a part for each command, which its own
 * cli_parse() writes. */
#include "cli/cli.h"

#include "base/util.h"

/* What may stand behind an option. */
enum value_is { VALUE_NONE, VALUE_WORDS, VALUE_FILE, VALUE_OTHER };

static enum value_is value_of(const struct cli_option *o) {
    if (o->kind == CLI_KIND_FLAG || o->kind == CLI_KIND_SWITCH)
        return VALUE_NONE;
    if (o->kind == CLI_KIND_CHOICE)
        return VALUE_WORDS;
    return o->value != NULL && str_list_has("FILE,DIR", o->value) ? VALUE_FILE : VALUE_OTHER;
}

/* "a|b|c" as "a b c". */
static void print_words(const char *choices) {
    for (const char *c = choices; *c != '\0'; c++)
        putchar(*c == '|' ? ' ' : *c);
}

/* Within single quotes. Brackets and backslashes mean something to zsh: round ones, and none. */
static void print_help(const char *text) {
    for (const char *c = text; *c != '\0'; c++)
        switch (*c) {
        case '\'':
            fputs("\xe2\x80\x99", stdout); /* the other apostrophe needs no quoting */
            break;
        case '[':
            putchar('(');
            break;
        case ']':
            putchar(')');
            break;
        case '\n':
            putchar(' ');
            break;
        case '\\':
            break;
        default:
            putchar(*c);
        }
}

/* "fabric bench" as "fabric_bench". */
static void print_function(const char *name) {
    printf("_lockstep_of_");
    for (const char *c = name; *c != '\0'; c++)
        putchar(*c == ' ' ? '_' : *c);
    printf("() {\n");
}

/* The words that a command begins with (fabric: bench or doctor), or NULL. */
static const char *parts_of(const struct cli_command *cmd) {
    const struct cli_option *first = cmd->options;
    return first->kind == CLI_KIND_ARG ? first->choices : NULL;
}

/* ---- bash ------------------------------------------------------------------------------------
 * _lockstep_of_NAME is called with the word before the one that is completed. */

static void bash_option(const struct cli_option *o, void *arg) {
    (void)arg;
    if (value_of(o) == VALUE_NONE)
        return;
    if (o->letter != 0)
        printf("    -%c%s", o->letter, o->name != NULL ? " | " : "");
    else
        printf("    ");
    if (o->name != NULL)
        printf("--%s", o->name);
    printf(") ");
    if (value_of(o) == VALUE_WORDS) {
        printf("_lockstep_words '");
        print_words(o->choices);
        printf("' ");
    } else if (value_of(o) == VALUE_FILE) {
        printf("_lockstep_files ");
    }
    printf(";;\n");
}

static void bash_name(const struct cli_option *o, void *arg) {
    (void)arg;
    if (o->name != NULL)
        printf("--%s ", o->name);
    else
        printf("-%c ", o->letter);
}

static void bash_command(const struct cli_command *cmd) {
    print_function(cmd->name);
    printf("    case $1 in\n");
    cli_each_option(cmd->options, bash_option, NULL);
    printf("    *) _lockstep_rest '");
    cli_each_option(cmd->options, bash_name, NULL);
    printf("--help'");
    if (parts_of(cmd) != NULL) {
        printf(" '");
        print_words(parts_of(cmd));
        putchar('\'');
    }
    printf(" ;;\n    esac\n}\n");
}

static void bash_frame(const struct cli_summary *commands, size_t n) {
    printf("_lockstep_words() { COMPREPLY=($(compgen -W \"$1\" -- \"$word\")); }\n"
           "_lockstep_files() {\n"
           "    local IFS=$'\\n'\n"
           "    compopt -o filenames 2>/dev/null\n"
           "    COMPREPLY=($(compgen -f -- \"$word\"))\n"
           "}\n"
           "_lockstep_rest() { # the command's options; its first words, if not a file\n"
           "    case $word in\n"
           "    -*) _lockstep_words \"$1\" ;;\n"
           "    *) if [ $# = 2 ]; then _lockstep_words \"$2\"; else _lockstep_files; fi ;;\n"
           "    esac\n"
           "}\n"
           "_lockstep() {\n"
           "    local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD - 1]}\n"
           "    COMPREPLY=()\n"
           "    if [ \"$word\" = = ]; then word=; fi # --name=value is three words here\n"
           "    if [ \"$before\" = = ]; then before=${COMP_WORDS[COMP_CWORD - 2]}; fi\n"
           "    if [ \"$COMP_CWORD\" = 1 ]; then\n"
           "        _lockstep_words '");
    for (size_t i = 0; i < n; i++)
        printf("%s ", commands[i].name);
    printf(
        "help --version --help'\n"
        "    elif declare -F \"_lockstep_of_${COMP_WORDS[1]}_${COMP_WORDS[2]}\" >/dev/null; then\n"
        "        \"_lockstep_of_${COMP_WORDS[1]}_${COMP_WORDS[2]}\" \"$before\"\n"
        "    elif declare -F \"_lockstep_of_${COMP_WORDS[1]}\" >/dev/null; then\n"
        "        \"_lockstep_of_${COMP_WORDS[1]}\" \"$before\"\n"
        "    fi\n"
        "}\n"
        "complete -F _lockstep lockstep\n");
}

/* ---- zsh --------------------------------------------------------------------------------- */

static void zsh_value(const struct cli_option *o) {
    switch (value_of(o)) {
    case VALUE_NONE:
        break;
    case VALUE_WORDS:
        printf(":%s:(", o->name != NULL ? o->name : "value");
        print_words(o->choices);
        putchar(')');
        break;
    case VALUE_FILE:
        printf(":file:_files");
        break;
    case VALUE_OTHER:
        printf(":value: ");
        break;
    }
}

static void zsh_entry(const struct cli_option *o, const char *dashes, const char *name,
                      const char *sign) {
    printf(" \\\n        '%s%s%s[", dashes, name, value_of(o) == VALUE_NONE ? "" : sign);
    print_help(o->help);
    putchar(']');
    zsh_value(o);
    putchar('\'');
}

static void zsh_option(const struct cli_option *o, void *arg) {
    const char letter[2] = {o->letter, '\0'};
    (void)arg;
    if (o->letter != 0)
        zsh_entry(o, "-", letter, "+");
    if (o->name != NULL)
        zsh_entry(o, "--", o->name, "=");
}

static void zsh_command(const struct cli_command *cmd) {
    print_function(cmd->name);
    printf("    _arguments -s -S");
    cli_each_option(cmd->options, zsh_option, NULL);
    printf(" \\\n        '--help[this text]'");
    if (parts_of(cmd) != NULL) {
        printf(" \\\n        '1:part:(");
        print_words(parts_of(cmd));
        printf(")'");
    }
    printf(" \\\n        '*:file:_files'\n}\n");
}

static void zsh_frame(const struct cli_summary *commands, size_t n) {
    printf("_lockstep() {\n"
           "    local command=$words[2]\n"
           "    local -a commands=(\n");
    for (size_t i = 0; i < n; i++) {
        printf("        '%s:", commands[i].name);
        print_help(commands[i].summary);
        printf("'\n");
    }
    printf(
        "    )\n"
        "    if ((CURRENT == 2)); then\n"
        "        _describe command commands\n"
        "    elif ((CURRENT > 3 && ${+functions[_lockstep_of_${words[2]}_${words[3]}]})); then\n"
        "        shift 2 words\n"
        "        ((CURRENT -= 2))\n"
        "        _lockstep_of_${command}_$words[1]\n"
        "    elif ((${+functions[_lockstep_of_$words[2]]})); then\n"
        "        shift words\n"
        "        ((CURRENT--))\n"
        "        _lockstep_of_$words[1]\n"
        "    fi\n"
        "}\n"
        "compdef _lockstep lockstep\n");
}

/* ---- fish -------------------------------------------------------------------------------- */

/* Of each word of the command's name. */
static void fish_condition(const char *command) {
    printf("complete -c lockstep -n '__fish_seen_subcommand_from ");
    for (const char *c = command; *c != '\0'; c++)
        if (*c == ' ')
            printf("; and __fish_seen_subcommand_from ");
        else
            putchar(*c);
    putchar('\'');
}

static void fish_option(const struct cli_option *o, void *command) {
    fish_condition(command);
    if (o->letter != 0)
        printf(" -s %c", o->letter);
    if (o->name != NULL)
        printf(" -l %s", o->name);
    switch (value_of(o)) {
    case VALUE_NONE:
        break;
    case VALUE_WORDS:
        printf(" -x -a '");
        print_words(o->choices);
        putchar('\'');
        break;
    case VALUE_FILE:
        printf(" -r -F");
        break;
    case VALUE_OTHER:
        printf(" -x");
        break;
    }
    printf(" -d '");
    print_help(o->help);
    printf("'\n");
}

static void fish_command(const struct cli_command *cmd) {
    if (parts_of(cmd) != NULL) {
        fish_condition(cmd->name);
        printf(" -f -a '");
        print_words(parts_of(cmd));
        printf("'\n");
    }
    cli_each_option(cmd->options, fish_option, (void *)(uintptr_t)cmd->name);
}

static void fish_frame(const struct cli_summary *commands, size_t n) {
    for (size_t i = 0; i < n; i++) {
        printf("complete -c lockstep -n __fish_use_subcommand -f -a %s -d '", commands[i].name);
        print_help(commands[i].summary);
        printf("'\n");
    }
}

/* ---- all of them ------------------------------------------------------------------------- */

static const struct shell {
    const char *name, *head;
    void (*command)(const struct cli_command *cmd);
    void (*frame)(const struct cli_summary *commands, size_t n);
} shells[] = {
    {"bash", "# bash completion for lockstep", bash_command, bash_frame},
    {"zsh", "#compdef lockstep", zsh_command, zsh_frame},
    {"fish", "# fish completion for lockstep", fish_command, fish_frame},
};

static const struct shell *find_shell(const char *name) {
    for (size_t i = 0; i < ARRAY_LEN(shells); i++)
        if (str_eq(shells[i].name, name))
            return &shells[i];
    return NULL;
}

bool cli_completion_begin(const char *shell) {
    const struct shell *s = find_shell(shell);
    if (s != NULL)
        printf("%s\n# Written by lockstep --help-completion=%s from its option tables.\n",
               s->head, s->name);
    return s != NULL;
}

void cli_completion_command(const char *shell, const struct cli_command *cmd) {
    const struct shell *s = find_shell(shell);
    if (s != NULL)
        s->command(cmd);
}

void cli_completion_end(const char *shell, const struct cli_summary *commands, size_t n) {
    const struct shell *s = find_shell(shell);
    if (s != NULL)
        s->frame(commands, n);
}
