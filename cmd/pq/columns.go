package main

import (
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"
	"golang.org/x/term"
)

// column is a column of a table.
type column struct {
	title string
	align alignment
}

// alignment says how the values of a column stand in it.
type alignment int

const (
	left alignment = iota
	right
	snipped // left, and cut if the terminal has not enough columns
)

// between is the blanks between columns.
const between = "  "

// columns is a table: for people with a heading, for programs with tabs between the columns.
type columns struct {
	out      io.Writer
	terminal bool
	width    int // of the terminal
	list     []column
	rows     []table.Row
}

func newColumns(out io.Writer, list ...column) *columns {
	c := &columns{out: out, list: list, terminal: isTerminal(out)}
	if f, ok := out.(*os.File); ok && c.terminal {
		c.width, _, _ = term.GetSize(int(f.Fd()))
	}
	return c
}

// row adds a row. People get numbers with commas.
func (c *columns) row(values ...any) {
	if c.terminal {
		for i, v := range values {
			if n, ok := v.(int64); ok {
				values[i] = grouped(n)
			}
		}
	}
	c.rows = append(c.rows, values)
}

// print prints the table.
func (c *columns) print() error {
	_, err := io.WriteString(c.out, c.String())
	return err
}

// String returns the table.
func (c *columns) String() string {
	if !c.terminal {
		var b strings.Builder
		for _, row := range c.rows {
			for i, v := range row {
				if i > 0 {
					b.WriteByte('\t')
				}
				fmt.Fprint(&b, v)
			}
			b.WriteByte('\n')
		}
		return b.String()
	}
	t := table.NewWriter()
	style := table.StyleDefault
	style.Options = table.OptionsNoBordersAndSeparators
	style.Box.PaddingLeft, style.Box.PaddingRight = "", between
	t.SetStyle(style)
	t.SuppressTrailingSpaces()
	t.SetColumnConfigs(c.configs())
	titles := make(table.Row, len(c.list))
	for i, col := range c.list {
		titles[i] = col.title
	}
	t.AppendHeader(titles)
	t.AppendRows(c.rows)
	return t.Render() + "\n"
}

// configs says how the columns are aligned, and how wide they can be.
func (c *columns) configs() []table.ColumnConfig {
	room := c.room()
	configs := make([]table.ColumnConfig, len(c.list))
	for i, col := range c.list {
		configs[i] = table.ColumnConfig{Number: i + 1, Align: text.AlignLeft, AlignHeader: text.AlignLeft}
		switch {
		case col.align == right:
			configs[i].Align, configs[i].AlignHeader = text.AlignRight, text.AlignRight
		case col.align == snipped && c.width > 0:
			configs[i].WidthMax = max(room, text.StringWidth(col.title))
			configs[i].WidthMaxEnforcer = func(name string, most int) string { return text.Snip(name, most, "~") }
		}
	}
	return configs
}

// room returns how many columns of the terminal are left for the one that is snipped.
func (c *columns) room() int {
	room := c.width
	for i, col := range c.list {
		room -= len(between)
		if col.align == snipped {
			continue
		}
		widest := text.StringWidth(col.title)
		for _, row := range c.rows {
			widest = max(widest, text.StringWidth(fmt.Sprint(row[i])))
		}
		room -= widest
	}
	return room
}

// dropLast removes the last column.
func (c *columns) dropLast() {
	last := len(c.list) - 1
	c.list = c.list[:last]
	for i, row := range c.rows {
		c.rows[i] = row[:last]
	}
}
