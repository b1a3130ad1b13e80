// Package disktest holds the contract suites of disk and disk/record: the same
// tests run against every file system and every journal engine. It has tests
// only.
package disktest
