package main

import "testing"

func TestSizesAreRead(t *testing.T) {
	for text, want := range map[string]byteSize{
		"0": 0, "4096": 4096, "256MiB": 256 << 20, "1GB": 1e9, "3 KiB": 3 << 10, "17B": 17,
	} {
		var got byteSize
		if err := got.UnmarshalText([]byte(text)); err != nil || got != want {
			t.Errorf("%q is %d (%v), want %d", text, got, err, want)
		}
	}
	for _, text := range []string{"", "MiB", "-1", "1.5GiB", "9999999999TiB", "5 bananas"} {
		var got byteSize
		if err := got.UnmarshalText([]byte(text)); err == nil {
			t.Errorf("%q is %d", text, got)
		}
	}
}
