package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"text/tabwriter"

	"github.com/tapedeck/tapedeck/bench"
)

// other runs another program over the same lines and reads its figures.
func (o *options) other(ctx context.Context, dir, what, binary, name string, args ...string) (*bench.Report, error) {
	file := filepath.Join(dir, name+".json")
	args = append(args, "--json", file, "--dir", dir, "--rounds", fmt.Sprint(o.rounds),
		"--warmup", o.warmup.String(), "--duration", o.duration.String())
	if o.quick {
		args = append(args, "--quick")
	}
	fmt.Fprintf(os.Stderr, "%s …\n", what)
	var said bytes.Buffer
	cmd := exec.CommandContext(ctx, binary, args...)
	cmd.Stdout, cmd.Stderr = &said, &said
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("%s: %w\n%s", what, err, said.String())
	}
	b, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	r := &bench.Report{}
	if err := json.Unmarshal(b, r); err != nil {
		return nil, fmt.Errorf("%s: %w", what, err)
	}
	return r, nil
}

// compare sets the ratios of rates to the lines of the same name.
func compare(ours, physical, always *bench.Report) {
	for _, x := range ours.Results {
		x.RatioPhysical = ratio(x, physical)
		x.RatioNATSAlways = ratio(x, always)
	}
}

func ratio(x *bench.Result, other *bench.Report) float64 {
	if other == nil {
		return 0
	}
	y := other.Find(x.Name)
	if y == nil || y.Median.PerSecond == 0 {
		return 0
	}
	return x.Median.PerSecond / y.Median.PerSecond
}

// latencies shows how many times as long ours take as the others', and how many
// messages a core-second is good for beside theirs.
func latencies(out io.Writer, ours *bench.Report, others map[string]*bench.Report) {
	w := tabwriter.NewWriter(out, 0, 8, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "line\tours ÷\tmsgs/s\tack p50\tack p99\te2e p50\te2e p99\tmsgs/core-s\t")
	for _, x := range ours.Results {
		for _, name := range slices.Sorted(maps.Keys(others)) {
			if others[name] == nil {
				continue
			}
			y := others[name].Find(x.Name)
			if y == nil {
				continue
			}
			a, b := &x.Median, &y.Median
			fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t\n", x.Name, name, over(a.PerSecond, b.PerSecond),
				times(a.Ack, b.Ack, p50), times(a.Ack, b.Ack, p99), times(a.EndToEnd, b.EndToEnd, p50),
				times(a.EndToEnd, b.EndToEnd, p99), over(a.PerCoreSecond, b.PerCoreSecond))
		}
	}
	_ = w.Flush() // standard output's error shows elsewhere
}

func p50(l *bench.Latency) float64 { return l.P50 }
func p99(l *bench.Latency) float64 { return l.P99 }

func over(a, b float64) string {
	if a == 0 || b == 0 {
		return "-"
	}
	return fmt.Sprintf("%.2f", a/b)
}

func times(a, b *bench.Latency, read func(*bench.Latency) float64) string {
	if a == nil || b == nil {
		return "-"
	}
	return over(read(a), read(b))
}
