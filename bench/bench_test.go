package bench

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestMedianOfRoundsIsByFigure(t *testing.T) {
	r := &Result{Name: "x", Rounds: []Figures{
		{PerSecond: 10, Ack: &Latency{P99: 3}, Partitions: []float64{1, 9}},
		{PerSecond: 30, Ack: &Latency{P99: 1}, Partitions: []float64{3, 7}},
		{PerSecond: 20, Partitions: []float64{2, 8}},
	}}
	r.Summarize()
	m := r.Median
	if m.PerSecond != 20 || m.Ack.P99 != 2 || m.Partitions[0] != 2 || m.Partitions[1] != 8 || m.EndToEnd != nil {
		t.Errorf("median %+v, ack %+v", m, m.Ack)
	}
	if r.Least != 10 || r.Most != 30 {
		t.Errorf("rounds from %v to %v", r.Least, r.Most)
	}
}

func TestLatencyKeepsThreeDigits(t *testing.T) {
	h := NewHistogram()
	if LatencyOf(h) != nil {
		t.Error("a latency of nothing")
	}
	for i := range 1000 {
		Note(h, time.Duration(i+1)*time.Millisecond)
	}
	Note(h, 24*time.Hour) // beyond what is told apart
	l := LatencyOf(h)
	if l.P50 < 500 || l.P50 > 502 || l.P99 < 990 || l.P99 > 992 || l.Max < 599_000 {
		t.Errorf("%+v", l)
	}
}

func TestLoadIsChecked(t *testing.T) {
	good := Load{Topic: "t", MessageBytes: 1024, Rounds: 1, Duration: time.Second}
	for name, change := range map[string]func(*Load){
		"no topic":      func(l *Load) { l.Topic = "" },
		"tiny messages": func(l *Load) { l.MessageBytes = 8 },
		"huge window":   func(l *Load) { l.Window = 2 * maxWindow },
		"no rounds":     func(l *Load) { l.Rounds = 0 },
		"flat Zipf":     func(l *Load) { l.Keys, l.Zipf = 10, 1 },
		"Zipf, no keys": func(l *Load) { l.Zipf = 1.1 },
		"negative rate": func(l *Load) { l.Rate = -1 },
	} {
		l := good
		if change(&l); l.check() == nil {
			t.Errorf("%s was taken", name)
		}
	}
	l := good
	l.Producers = 5
	if err := l.check(); err != nil || l.Producers != 1 || l.Publishers != 1 || l.Window != 4096 {
		t.Errorf("%+v, %v", l, err)
	}
}

func TestZipfSkewsKeys(t *testing.T) {
	l := Load{Keys: 100, Zipf: 1.5}
	g := &generator{load: &l}
	for k := range l.Keys {
		g.keys = append(g.keys, []byte{byte(k)})
	}
	seen := map[byte]int{}
	choose := g.chooser(0)
	for range 10_000 {
		seen[choose()[0]]++
	}
	if seen[0] < 10*seen[20] || seen[0] == 10_000 {
		t.Errorf("key 0 was drawn %d times, key 20 %d times", seen[0], seen[20])
	}
}

func TestMetricsLines(t *testing.T) {
	name, v, ok := sample(`process_cpu_seconds_total{node="n1"} 12.5`)
	if name != "process_cpu_seconds_total" || v != 12.5 || !ok {
		t.Errorf("got %s %v %t", name, v, ok)
	}
	for _, line := range []string{"", "# HELP x y", "x", "x y"} {
		if _, _, ok := sample(line); ok {
			t.Errorf("%q was taken for a sample", line)
		}
	}
}

func TestPageAndTable(t *testing.T) {
	r := NewReport()
	r.Results = []*Result{
		{Name: "<fast>", Kind: "publish", Rounds: []Figures{{PerSecond: 5, Ack: &Latency{P50: 1, P99: 2}}}},
		{Name: "lost", Kind: "failover", Rounds: []Figures{{Gap: 321}}},
	}
	for _, x := range r.Results {
		x.Summarize()
	}
	file := filepath.Join(t.TempDir(), "new", "page.html")
	if err := r.WritePage(file); err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"&lt;fast&gt;", "321", "Acknowledged after"} {
		if !strings.Contains(string(page), want) {
			t.Errorf("the page lacks %q", want)
		}
	}
	var table strings.Builder
	if err := r.Table(&table); err != nil || !strings.Contains(table.String(), "<fast>") {
		t.Errorf("error %v, table:\n%s", err, table.String())
	}
}
