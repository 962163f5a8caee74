/* main.c: `lockstep`: the table of subcommands, its help, and settings for all of them:
 * signals, descriptors, the stack. */
#include "cli/cli.h"
#include "cli/style.h"

#include "base/file.h"
#include "base/file_map.h"
#include "base/float_env.h"
#include "base/init_pid1.h"
#include "base/log.h"
#include "base/program.h"
#include "base/thread.h"
#include "base/util.h"
#include "ranks/launch.h"
#include "shaders/shaders.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <unistd.h>

struct subcommand {
    const char *name;
    int (*run)(int argc, char **argv);
    const char *summary; /* NULL: not for people */
    bool common;         /* lockstep help names it; the others are in lockstep help all */
};

static const struct subcommand subcommands[] = {
    {"run", cmd_run, "answers a prompt", true},
    {"chat", cmd_chat, "holds a conversation in the terminal", true},
    {"serve", cmd_serve, "serves the APIs of OpenAI, Anthropic and Ollama over HTTP", true},
    {"eval", cmd_eval, "writes the logits of given tokens, to compare bits", false},
    {"bench", cmd_bench, "measures speed, beside what this machine could do at most", false},
    {"tokenize", cmd_tokenize, "converts text to token ids, and back", false},
    {"template", cmd_template, "renders a model's chat template", false},
    {"grammar", cmd_grammar, "checks a text against a grammar or a JSON schema", false},
    {"plan", cmd_plan, "shows which rank would hold what, from a header alone", false},
    {"inspect", cmd_inspect, "shows what a model file holds", false},
    {"quantize", cmd_quantize, "converts a model file to another weight type", false},
    {"synth", cmd_synth, "writes a model with a true shape and random weights", false},
    {"fabric", cmd_fabric, "measures the links between ranks", false},
    {"devices", cmd_devices, "lists the devices (GPUs) of this machine", false},
    {"node", cmd_node, "makes this machine part of a cluster", true},
    {"nodes", cmd_nodes, "lists the machines of the cluster", true},
    {"models", cmd_models, "lists the models of the cluster", true},
    {"pull", cmd_pull, "downloads a model from Hugging Face's hub", true},
    {"rm", cmd_rm, "removes a model from this machine", false},
    {"verify", cmd_verify, "compares a pulled model with its checksums", false},
    {"fetch", cmd_fetch, "copies a model of the cluster to this machine", false},
    {"up", cmd_up, "lets the nodes of the cluster serve a model together", true},
    {"down", cmd_down, "ends what lockstep up has put up", true},
    {"move", cmd_move, "says which nodes compute a model that is up, and how", false},
    {"ps", cmd_ps, "lists the models that run", true},
    {"top", cmd_top, "shows what the cluster does, each second", true},
    {"key", cmd_key, "shows, sets or makes the cluster's key", false},
    {"remote", cmd_remote, NULL, false},
    {"worker", cmd_worker, NULL, false},
};

/* ---- lockstep, lockstep help, lockstep --version ----------------------------------------- */

static const struct subcommand *find(const char *name) {
    for (size_t i = 0; i < ARRAY_LEN(subcommands); i++)
        if (str_eq(subcommands[i].name, name))
            return &subcommands[i];
    return NULL;
}

static int run(const struct subcommand *sub, int argc, char **argv) {
    cli_set_command(sub->name);
    int status = sub->run(argc, argv);
    int flushed = cli_flush();
    return status == 0 && flushed != CLI_GO_ON ? flushed : status;
}

static void list_commands(bool all) {
    for (size_t i = 0; i < ARRAY_LEN(subcommands); i++)
        if (subcommands[i].summary != NULL && (all || subcommands[i].common))
            printf("  %s%-10s%s %s\n", style_text(STDOUT_FILENO, STYLE_NAME),
                   subcommands[i].name, style_text(STDOUT_FILENO, STYLE_NONE),
                   subcommands[i].summary);
}

static const struct {
    const char *name, *what;
} environment[] = {
    {"NO_COLOR", "no colours; CLICOLOR_FORCE: also where the output is no terminal"},
    {"LOCKSTEP_ISA",
     "scalar, avx2, avxvnni, avx512, amx, neon or i8mm: the instruction set to use,\n"
     "instead of the best one; never changes the bits"},
    {"LOCKSTEP_LOG", "error, warn, info (default) or debug: what is said on stderr"},
    {"LOCKSTEP_SECRET", "the secret of a group with --join"},
    {"LOCKSTEP_API_KEY", "the key for servers (chat --server)"},
    {"LOCKSTEP_CLUSTER_KEY", "the file with the cluster's key (lockstep key)"},
    {"HF_ENDPOINT", "the hub to pull models from, instead of the public one"},
    {"HF_TOKEN", "a token for the hub, instead of the one in the file token of HF_HOME"},
    {"HF_HOME",
     "where models of the hub lie, in its folder hub\n(default ~/.cache/huggingface)"},
    {"SSL_CERT_FILE", "certificates to trust when models are pulled, instead of the\nsystem's"},
    {"LOCKSTEP_SSH",
     "the program that starts ranks on other machines (--hosts), instead of ssh"},
    {"LOCKSTEP_WORKER", "the program to start for ranks above 0"},
    {"LOCKSTEP_IBVERBS", "the library of --link verbs, instead of the system's libibverbs"},
    {"LOCKSTEP_UCP", "the library of --link ucx, instead of the system's libucp"},
    {"LOCKSTEP_VULKAN_LIB", "the library for devices, instead of the system's libvulkan"},
    {"LOCKSTEP_DEVICE_TIMEOUT",
     "after so many seconds without an answer a device is lost\n(default 10)"},
};

static void list_environment(void) {
    for (size_t i = 0; i < ARRAY_LEN(environment); i++) {
        const char *line = environment[i].what, *rest = strchr(line, '\n');
        printf("  %-24s%.*s\n", environment[i].name,
               (int)(rest != NULL ? rest - line : (ptrdiff_t)strlen(line)), line);
        if (rest != NULL)
            printf("  %-24s%s\n", "", rest + 1);
    }
}

static void help(bool all) {
    const char *bold = style_text(STDOUT_FILENO, STYLE_BOLD);
    const char *plain = style_text(STDOUT_FILENO, STYLE_NONE);
    printf("lockstep " LOCKSTEP_VERSION
           ": one language model on several ranks, the same bits on any number\n\n"
           "%susage:%s lockstep COMMAND [arguments] [options]\n\n",
           bold, plain);
    list_commands(all);
    printf("\nlockstep COMMAND --help says more. For example:\n\n"
           "  lockstep run model.gguf -p \"What is a bit bucket?\" --ranks 3 --split 3,2,1\n");
    if (!all) {
        printf("\n%slockstep help all%s has the other commands and the environment.\n", bold,
               plain);
        return;
    }
    printf("\nexit status: " CLI_EXIT_STATUSES "\n\n"
           "environment:\n\n");
    list_environment();
}

static void man_page(void) {
    printf(".TH LOCKSTEP 1 \"\" \"lockstep " LOCKSTEP_VERSION "\" \"lockstep manual\"\n"
           ".SH NAME\nlockstep \\- one language model on several ranks\n"
           ".SH SYNOPSIS\n.B lockstep\nCOMMAND [arguments] [options]\n"
           ".SH DESCRIPTION\n"
           "Runs one large language model split over several ranks, and gives the same bits on "
           "any number of them, however the work is split.\n.SH COMMANDS\n");
    for (size_t i = 0; i < ARRAY_LEN(subcommands); i++)
        if (subcommands[i].summary != NULL)
            printf(".TP\n.BR lockstep\\-%s (1)\n%s\n", subcommands[i].name,
                   subcommands[i].summary);
    printf(".SH ENVIRONMENT\n");
    for (size_t i = 0; i < ARRAY_LEN(environment); i++)
        printf(".TP\n.B %s\n%s\n", environment[i].name, environment[i].what);
}

/* After something was printed: the exit status. */
static int printed(void) {
    int status = cli_flush();
    return status == CLI_GO_ON ? 0 : status;
}

/* Each command's own part, and those of fabric's two; then what calls them. */
static int completion(char *option) {
    const char *shell = option + strlen(CLI_COMPLETION);
    struct cli_summary commands[ARRAY_LEN(subcommands)];
    size_t n = 0;
    if (!cli_completion_begin(shell))
        return cli_fail(ST_BAD_INPUT, "%s: expected bash, zsh or fish", option);
    for (size_t i = 0; i < ARRAY_LEN(subcommands); i++) {
        const struct subcommand *sub = &subcommands[i];
        if (sub->summary == NULL)
            continue;
        sub->run(2, (char *[]){(char *)(uintptr_t)sub->name, option, NULL});
        commands[n++] = (struct cli_summary){sub->name, sub->summary};
    }
    cmd_fabric(3, (char *[]){"fabric", "bench", option, NULL});
    cmd_fabric(3, (char *[]){"fabric", "doctor", option, NULL});
    cli_completion_end(shell, commands, n);
    return printed();
}

static int unknown_command(const char *name) {
    if (name[0] == '-')
        return cli_fail(ST_BAD_INPUT,
                        "unknown option %s; options follow a command (lockstep help)", name);
    for (size_t i = 0; i < ARRAY_LEN(subcommands); i++)
        if (subcommands[i].summary != NULL && str_starts(subcommands[i].name, name))
            return cli_fail(ST_BAD_INPUT, "unknown command '%s' (did you mean %s?)", name,
                            subcommands[i].name);
    for (size_t i = 0; i < ARRAY_LEN(subcommands) && strlen(name) >= 3; i++)
        if (subcommands[i].summary != NULL &&
            cli_edit_distance(name, strlen(name), subcommands[i].name) <= 2)
            return cli_fail(ST_BAD_INPUT, "unknown command '%s' (did you mean %s?)", name,
                            subcommands[i].name);
    return cli_fail(ST_BAD_INPUT, "unknown command '%s'; see lockstep help", name);
}

/* lockstep help COMMAND [PART] [all]; a PART is of a command that has some (fabric bench). */
static int help_on(int argc, char **argv) {
    char *words[6] = {argv[0]};
    const struct subcommand *sub = find(argv[0]);
    int n = 1;
    bool all = argc > 1 && str_eq(argv[argc - 1], "all");
    if (sub == NULL && str_eq(argv[0], "help")) {
        help(all);
        return printed();
    }
    if (sub == NULL)
        return unknown_command(argv[0]);
    if (argc - all > 1)
        words[n++] = argv[1];
    words[n++] = "--help";
    if (all)
        words[n++] = "all";
    return run(sub, n, words);
}

/* The starter of the command may have closed descriptor 0, 1 or 2. Then the first file or
 * socket would get that number, and printed text would go to another rank. So they are opened,
 * in the wrong direction: reads and writes still fail. */
static void take_standard_descriptors(void) {
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
        if (fcntl(fd, F_GETFD) < 0 && errno == EBADF)
            open("/dev/null", fd == STDIN_FILENO ? O_WRONLY : O_RDONLY);
}

/* The least stack of a command, whatever ulimit -s says, since templates and grammars nest. It
 * is less than the usual 8 MiB, of which a little is already used. */
#define STACK_BYTES ((size_t)4 << 20)

struct command_line {
    int argc;
    char **argv;
    int exit_status;
};

static int run_command(int argc, char **argv) {
    /* Not what a library has set that was loaded, or a packager's -ffast-math: gcc's flushes
     * subnormals from the start. */
    struct float_env loaders;
    float_env_begin(&loaders);
    launch_from_lockstep();
    if (argc < 2) {
        help(false);
        return 2;
    }
    const char *name = argv[1];
    if (str_eq(name, "--version") || str_eq(name, "version")) {
        printf("lockstep " LOCKSTEP_VERSION " (%s)\n",
               shaders_built() ? "with shaders" : "without shaders");
        return printed();
    }
    if (str_eq(name, "--help-man")) {
        man_page();
        return printed();
    }
    if (str_starts(name, CLI_COMPLETION))
        return completion(argv[1]);
    if (str_eq(name, "help") || str_eq(name, "--help") || str_eq(name, "-h") ||
        str_eq(name, "--help-all")) {
        bool all = str_eq(name, "--help-all") || (argc > 2 && str_eq(argv[2], "all"));
        if (argc > 2 && !all)
            return help_on(argc - 2, argv + 2);
        help(all);
        return printed();
    }
    const char *level = env_get("LOCKSTEP_LOG");
    if (level != NULL && !log_knows(level))
        return cli_fail(
            ST_BAD_INPUT,
            "LOCKSTEP_LOG=%.40s is not a valid level: expected error, warn, info or debug",
            level);
    const struct subcommand *sub = find(name);
    return sub != NULL ? run(sub, argc - 1, argv + 1) : unknown_command(name);
}

static void run_line(void *line_) {
    struct command_line *line = line_;
    line->exit_status = run_command(line->argc, line->argv);
}

int main(int argc, char **argv) {
    struct command_line line = {.argc = argc, .argv = argv};
    take_standard_descriptors();
    /* A reader that went away becomes a write error, which ends the command in an orderly way.
     * So does a file that has reached the limit of ulimit -f. */
    signal(SIGPIPE, SIG_IGN);
    signal(SIGXFSZ, SIG_IGN);
    /* The starter of the command may ignore it, and this is inherited. Then the end of a child
     * could not be noticed. */
    signal(SIGCHLD, SIG_DFL);
    file_map_catch();
    init_pid1();
    thread_call(STACK_BYTES, run_line, &line);
    return line.exit_status;
}
