package bench

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"text/tabwriter"
	"time"
)

// Report is one run: where and when, and its lines.
type Report struct {
	Began   time.Time `json:"began"`
	Machine Machine   `json:"machine"`
	Results []*Result `json:"results"`
}

// Machine is what the figures depend on.
type Machine struct {
	OS    string `json:"os"`
	Arch  string `json:"arch"`
	Cores int    `json:"cores"`
	CPU   string `json:"cpu,omitempty"`
	Go    string `json:"go"`
	// Load is the machine's load average of the last minute when the run began: others at work make figures noisy.
	Load string `json:"loadAverage,omitempty"`
}

// NewReport begins one.
func NewReport() *Report { return &Report{Began: time.Now().UTC(), Machine: ThisMachine()} }

// ThisMachine describes the machine.
func ThisMachine() Machine {
	return Machine{
		OS: runtime.GOOS, Arch: runtime.GOARCH, Cores: runtime.NumCPU(), Go: runtime.Version(),
		CPU: cpuModel(), Load: loadAverage(),
	}
}

// Find returns a line by name, or nil.
func (r *Report) Find(name string) *Result {
	for _, x := range r.Results {
		if x.Name == name {
			return x
		}
	}
	return nil
}

// WriteJSON writes the report to a file, and makes its folder.
func (r *Report) WriteJSON(file string) error { return WriteJSON(file, r) }

// WriteJSON writes a value to a file, and makes its folder.
func WriteJSON(file string, v any) error {
	b, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return err
	}
	return writeFile(file, append(b, '\n'))
}

func writeFile(file string, content []byte) error {
	if err := os.MkdirAll(filepath.Dir(file), 0o777); err != nil {
		return err
	}
	return os.WriteFile(file, content, 0o666)
}

// Table prints the medians.
func (r *Report) Table(out io.Writer) error {
	w := tabwriter.NewWriter(out, 0, 8, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "line\tmsgs/s\t(rounds)\tMB/s\tack p50\tp99\te2e p50\tp99\tmsgs/core-s\t"+
		"written/acked\t÷ physical\t÷ NATS always\t")
	for _, x := range r.Results {
		m := &x.Median
		fmt.Fprintf(w, "%s\t%.0f\t%s\t%.1f\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t\n", x.Name, m.PerSecond, x.spread(), m.MBps,
			millis(m.Ack, p50), millis(m.Ack, p99), millis(m.EndToEnd, p50), millis(m.EndToEnd, p99),
			number(m.PerCoreSecond, 0), number(m.WrittenPerAcked, 2), number(x.RatioPhysical, 2), number(x.RatioNATSAlways, 2))
	}
	if err := w.Flush(); err != nil {
		return err
	}
	for _, x := range r.Results {
		for _, n := range x.Notes {
			fmt.Fprintf(out, "%s: %s\n", x.Name, n)
		}
		if x.Kind == "failover" {
			fmt.Fprintf(out, "%s: time without an ack after each loss, ms:", x.Name)
			for i := range x.Rounds {
				fmt.Fprintf(out, " %.0f", x.Rounds[i].Gap)
			}
			fmt.Fprintf(out, "; median %.0f\n", x.Median.Gap)
		}
	}
	return nil
}

func (r *Result) spread() string { return fmt.Sprintf("%.0f–%.0f", r.Least, r.Most) }

func p50(l *Latency) float64 { return l.P50 }
func p99(l *Latency) float64 { return l.P99 }

func millis(l *Latency, read func(*Latency) float64) string {
	if l == nil {
		return "-"
	}
	return fmt.Sprintf("%.2f", read(l))
}

func number(v float64, places int) string {
	if v == 0 {
		return "-"
	}
	return fmt.Sprintf("%.*f", places, v)
}
