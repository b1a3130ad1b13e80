// Command tapedeck is the broker and its command line: serve runs one node, dev
// a whole cluster in one process, demo shows what it does; the other commands
// are a client's.
//
// Every flag may also come from the environment (TAPEDECK_ and its name) or,
// under its name, from the YAML file given with --config; the command line wins,
// then the environment, then the file.
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"reflect"
	"syscall"
	"time"

	"github.com/alecthomas/kong"
)

// root is the command line. A command is a struct with flags and a method
// Run(ctx context.Context, std *stdio) error; ctx ends at SIGINT or SIGTERM.
type root struct {
	Config kong.ConfigFlag `help:"YAML file with values for flags." placeholder:"FILE"`

	Serve  serveCmd  `cmd:"" help:"Run one node of a cluster."`
	Dev    devCmd    `cmd:"" help:"Run a whole cluster in this process, to try things out."`
	Verify verifyCmd `cmd:"" help:"Check the files of a node that is not running."`
	Demo   demoCmd   `cmd:"" help:"Show publish, pull, ack, replay and failover on a cluster of its own."`

	clientCommands

	Help    helpCmd    `cmd:"" help:"Show all commands, or the flags of one."`
	Version versionCmd `cmd:"" help:"Say which version this is."`
}

// stdio is what a command reads and writes, so that tests can take its place.
type stdio struct {
	In       io.Reader
	Out, Err io.Writer
}

func main() {
	ctx, stop := context.WithCancel(context.Background())
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM)
	go heed(signals, stop, func() {
		temporary.removeAll()
		os.Exit(1)
	})
	os.Exit(run(ctx, os.Args[1:], &stdio{os.Stdin, os.Stdout, os.Stderr}))
}

// parserOptions are the command line's, but for where it writes and exits.
func parserOptions() []kong.Option {
	return []kong.Option{
		kong.Name("tapedeck"),
		kong.Description("A replicated publish/subscribe broker with replay."),
		kong.DefaultEnvars("TAPEDECK"),
		kong.TypeMapper(reflect.TypeFor[time.Duration](), spanMapper),
		kong.Configuration(yamlResolver),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true}),
		kong.Vars{
			"origin_help": "Web origins whose pages may call: https://host:port, " +
				"or localhost for any port of this machine, or * for any.",
			"bootstrap_help": "Found the cluster without asking the peers: only for its first start, " +
				"and only when some of them are gone for good.",
			"dev_data_help": "Folder to keep the data in; without it a temporary one is used and removed at the end.",
			"filter_help": "Only messages whose attributes fit: " +
				`attributes.region == "eu" && !has(attributes.test) || attributes.name.startsWith("a").`,
			"seek_help": "earliest, latest, a moment (RFC 3339), a while ago (10m, 7d), an offset (0), " +
				"or offsets by partition (0:17,1:5).",
			"from_help":     "earliest, latest, a moment (RFC 3339) or a while ago (10m, 7d).",
			"disk_low_help": "Room on the disk below which publishes are refused.",
			"journal_help": "Who writes the journal's files: own (this program) or tidwall (a library, slower). " +
				"A data folder may be opened by either after the other.",
			"segment_help":   "Size at which a partition's file is closed; retention takes whole files.",
			"disk_high_help": "Room from which on they are taken again.",
			"peers_help":     "Every node of the cluster, this one too.",
			"largest_help":   "Size of the largest message, such as 512KiB, with key, attributes and 18 of its own; 0: 1 MiB.",
		},
	}
}

// run parses args, runs the command and returns the exit code: 0 done, 1 failed,
// 2 not understood.
func run(ctx context.Context, args []string, std *stdio) int {
	var r root
	if len(args) == 0 {
		fmt.Fprint(std.Out, firstSteps)
		return 0
	}
	exit := -1
	parser, err := kong.New(&r, append(parserOptions(), kong.Writers(std.Out, std.Err),
		kong.Exit(func(code int) { exit = code }))...)
	if err != nil {
		fmt.Fprintln(std.Err, "tapedeck:", err)
		return 2
	}
	kctx, err := parser.Parse(asMeant(args))
	if exit >= 0 { // --help
		return exit
	}
	if err != nil {
		err = misread(err)
	} else {
		err = checkValues(kctx)
	}
	if err != nil {
		fmt.Fprintln(std.Err, "tapedeck:", err)
		return 2
	}
	kctx.BindTo(ctx, (*context.Context)(nil))
	if err := kctx.Run(std); err != nil {
		fmt.Fprintln(std.Err, "tapedeck:", err)
		return 1
	}
	return 0
}
