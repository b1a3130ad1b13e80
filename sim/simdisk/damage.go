package simdisk

import "io/fs"

// Heal ends every fault that was switched on: calls succeed and there is room
// again. What was damaged stays damaged.
func (d *Disk) Heal() { d.faults, d.limited = nil, false }

// Limited says that the free space is bounded.
func (d *Disk) Limited() bool { return d.limited }

// Bytes is a file's content as it is now, for whoever chooses what to damage;
// nil if there is no such file. It must not be changed.
func (d *Disk) Bytes(name string) []byte {
	n, err := d.find("bytes", name)
	if err != nil || n.dir {
		return nil
	}
	return n.data
}

// Overwrite puts bytes over a file's content, on the disk itself and for good:
// the place that a misdirected write hit, or, with zeros, that a lost write did
// not reach. Bytes beyond the file's end are left out.
func (d *Disk) Overwrite(name string, off int64, b []byte) error {
	n, err := d.find("overwrite", name)
	if err != nil {
		return err
	}
	if n.dir || off < 0 || off >= int64(len(n.data)) {
		return &fs.PathError{Op: "overwrite", Path: name, Err: fs.ErrInvalid}
	}
	copy(n.data[off:], b)
	return nil
}
