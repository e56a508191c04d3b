package main

import (
	"regexp"
	"testing"

	"github.com/pqbridge/pqbridge/subjects/settings"
	"github.com/pqbridge/pqbridge/testenv/harness"
)

// The variables and flags of pqbridge, and the settings of queues, are as testdata/kept.txt says.
func TestKept(t *testing.T) {
	var lines []string
	for _, v := range variables() {
		lines = append(lines, "variable "+v.name)
	}
	for row := range settings.All() {
		lines = append(lines, "setting "+row.Name)
	}
	for _, flag := range regexp.MustCompile(`\s-[a-z]+`).FindAllString(helpHead, -1) {
		lines = append(lines, "flag "+flag[1:])
	}
	harness.Kept(t, "testdata/kept.txt", lines)
}
