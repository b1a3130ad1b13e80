package main

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/tapedeck/tapedeck/core/model"
)

// byteSize is a flag such as 256MiB, 1GB or 4096.
type byteSize uint64

// units of sizes, the longer names first.
var byteUnits = []struct {
	name  string
	bytes uint64
}{
	{"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30}, {"TiB", 1 << 40},
	{"KB", 1e3}, {"MB", 1e6}, {"GB", 1e9}, {"TB", 1e12}, {"B", 1},
}

// UnmarshalText implements encoding.TextUnmarshaler.
func (b *byteSize) UnmarshalText(text []byte) error {
	number, unit := string(text), uint64(1)
	for _, u := range byteUnits {
		if rest, ok := strings.CutSuffix(number, u.name); ok {
			number, unit = rest, u.bytes
			break
		}
	}
	n, err := strconv.ParseUint(strings.TrimSpace(number), 10, 64)
	if err != nil || n > 1<<62/unit {
		return fmt.Errorf("%q is no size; write it like 256MiB or 1GB", text)
	}
	*b = byteSize(n * unit)
	return nil
}

// messageSize is a size that fits what a message may have.
type messageSize uint32

// UnmarshalText implements encoding.TextUnmarshaler.
func (m *messageSize) UnmarshalText(text []byte) error {
	var b byteSize
	if err := b.UnmarshalText(text); err != nil {
		return err
	}
	if b > math.MaxUint32 {
		return fmt.Errorf("%q is more than any message may have (%s)", text, size(model.MaxMessageBytes))
	}
	*m = messageSize(b)
	return nil
}
