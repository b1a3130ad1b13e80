package bench

import (
	"bytes"
	"fmt"
	"html/template"
)

// page is one file with everything in it: bars of rates and latencies.
var page = template.Must(template.New("page").Funcs(template.FuncMap{
	"bar": func(v, most float64) float64 { return 420 * v / max(most, 1e-9) },
}).Parse(`<!doctype html>
<html lang="en"><meta charset="utf-8"><title>Tapedeck: benchmark</title>
<style>
body{font:14px/1.5 system-ui,sans-serif;max-width:70rem;margin:2rem auto;padding:0 1rem;color:#1b1f24}
h2{margin-top:2rem} svg{display:block;width:100%;height:auto} text{font:12px system-ui,sans-serif;fill:#1b1f24}
.whisker{stroke:#1b1f24;stroke-width:1.5} small{color:#57606a}
</style>
<h1>Tapedeck: benchmark</h1>
<p><small>{{.Report.Began.Format "2006-01-02 15:04 UTC"}} · {{.Report.Machine.Cores}} cores {{.Report.Machine.CPU}} ·
{{.Report.Machine.OS}}/{{.Report.Machine.Arch}} · {{.Report.Machine.Go}} · load {{.Report.Machine.Load}}</small></p>
{{range .Charts}}<h2>{{.Title}}</h2>
<svg viewBox="0 0 860 {{.Height}}" role="img" aria-label="{{.Title}}">{{$most := .Most}}
{{range .Bars}}<g transform="translate(0 {{.Y}})"><title>{{.Name}}: {{.Label}}</title>
<text x="250" y="14" text-anchor="end">{{.Name}}</text>
<rect x="260" y="2" width="{{bar .Value $most}}" height="16" fill="{{.Color}}"/>
{{if .Low}}<line class="whisker" x1="{{.LowX}}" x2="{{.HighX}}" y1="10" y2="10"/>{{end}}
<text x="{{.LabelX}}" y="14">{{.Label}}</text></g>
{{end}}</svg>{{end}}
</html>
`))

type chart struct {
	Title  string
	Most   float64
	Height int
	Bars   []bar
}

type bar struct {
	Name, Label, Color string
	Value, Low, High   float64
	Y                  int
	LowX, HighX        float64
	LabelX             float64
}

const (
	barHeight = 24
	barWidth  = 420 // of the longest
	barStart  = 260
)

func (c *chart) add(b bar) {
	b.Y = barHeight * len(c.Bars)
	c.Most = max(c.Most, b.Value, b.High)
	c.Bars = append(c.Bars, b)
	c.Height = barHeight*len(c.Bars) + 6
}

// scale places what depends on the longest bar.
func (c *chart) scale() {
	for i := range c.Bars {
		b := &c.Bars[i]
		x := func(v float64) float64 { return barStart + barWidth*v/max(c.Most, 1e-9) }
		b.LowX, b.HighX = x(b.Low), x(b.High)
		b.LabelX = x(max(b.Value, b.High)) + 8
	}
}

// WritePage writes the report as one HTML file.
func (r *Report) WritePage(file string) error {
	rates := chart{Title: "Messages per second (median; the line spans the rounds)"}
	acks := chart{Title: "Acknowledged after, ms (median and 99th percentile)"}
	ends := chart{Title: "End to end, ms (median and 99th percentile)"}
	gaps := chart{Title: "Time without an ack when a leader is killed, ms"}
	latency := func(c *chart, name string, l *Latency) {
		if l == nil {
			return
		}
		c.add(bar{Name: name + " p50", Value: l.P50, Label: fmt.Sprintf("%.2f", l.P50), Color: "#54aeff"})
		c.add(bar{Name: "p99", Value: l.P99, Label: fmt.Sprintf("%.2f", l.P99), Color: "#b6e3ff"})
	}
	for _, x := range r.Results {
		if x.Kind == "failover" {
			for i := range x.Rounds {
				gaps.add(bar{Name: fmt.Sprintf("%s %d", x.Name, i+1), Value: x.Rounds[i].Gap,
					Label: fmt.Sprintf("%.0f", x.Rounds[i].Gap), Color: "#ff8182"})
			}
			continue
		}
		rates.add(bar{Name: x.Name, Value: x.Median.PerSecond, Low: x.Least, High: x.Most, Color: "#4ac26b",
			Label: fmt.Sprintf("%.0f (%.1f MB/s)", x.Median.PerSecond, x.Median.MBps)})
		latency(&acks, x.Name, x.Median.Ack)
		latency(&ends, x.Name, x.Median.EndToEnd)
	}
	var charts []chart
	for _, c := range []chart{rates, acks, ends, gaps} {
		if len(c.Bars) > 0 {
			c.scale()
			charts = append(charts, c)
		}
	}
	var out bytes.Buffer
	err := page.Execute(&out, struct {
		Report *Report
		Charts []chart
	}{r, charts})
	if err != nil {
		return fmt.Errorf("draw the page: %w", err)
	}
	return writeFile(file, out.Bytes())
}
