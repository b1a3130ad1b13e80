package bench

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/tapedeck/tapedeck/client"
)

// Usage is what processes have used since they began.
type Usage struct {
	CPU     float64 // core-seconds
	Written float64 // bytes
}

// Meter reads what the nodes have used, all together.
type Meter func(context.Context) (Usage, error)

func (u Usage) sub(v Usage) Usage { return Usage{u.CPU - v.CPU, u.Written - v.Written} }

// MetricsMeter reads the metrics that every node of the cluster serves. Of the
// bytes written these tell the journal's alone.
func MetricsMeter(c *client.Client) Meter {
	hc := &http.Client{Timeout: 5 * time.Second}
	return func(ctx context.Context) (Usage, error) {
		cluster, err := c.GetCluster(ctx)
		if err != nil {
			return Usage{}, fmt.Errorf("ask for the nodes: %w", err)
		}
		var sum Usage
		for _, n := range cluster.GetNodes() {
			u, err := scrape(ctx, hc, "http://"+n.GetAddress()+"/metrics")
			if err != nil {
				return Usage{}, fmt.Errorf("metrics of node %s: %w", n.GetId(), err)
			}
			sum.CPU, sum.Written = sum.CPU+u.CPU, sum.Written+u.Written
		}
		return sum, nil
	}
}

func scrape(ctx context.Context, hc *http.Client, url string) (u Usage, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return u, err
	}
	resp, err := hc.Do(req)
	if err != nil {
		return u, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return u, fmt.Errorf("%s", resp.Status)
	}
	lines := bufio.NewScanner(resp.Body)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		name, value, ok := sample(lines.Text())
		switch {
		case !ok:
		case name == "process_cpu_seconds_total":
			u.CPU = value
		case name == "tapedeck_journal_bytes_total":
			u.Written = value
		}
	}
	return u, lines.Err()
}

// sample takes a line of the text format apart; labels are left out.
func sample(line string) (name string, value float64, ok bool) {
	if line == "" || line[0] == '#' {
		return "", 0, false
	}
	at := strings.LastIndexByte(line, ' ')
	if at < 0 {
		return "", 0, false
	}
	value, err := strconv.ParseFloat(line[at+1:], 64)
	name, _, _ = strings.Cut(line[:at], "{")
	return name, value, err == nil
}
