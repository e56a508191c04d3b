// Package schedule says when the items of a schedule are pushed: what can be set for one, how it is
// checked and stored, and which of its times are due. It does no I/O and reads no clock.
//
// # Times
//
// A schedule has a cron expression or an interval. An interval counts from the time when the schedule
// was set. A cron expression has five fields, minute, hour, day of month, month and day of week, or is
// a name such as @daily. If neither day field begins with a star, one of them has to match.
//
// A cron expression means the wall clock of the zone. When that is changed, Vixie cron's rule holds:
//
//   - With a star in the minute or the hour, the schedule follows real time: it fires at each time that
//     the clock shows and that matches, also when the clock shows it a second time.
//   - Otherwise it fires once a day for each time: a time that the clock skips fires when it has
//     skipped it (02:30 at 03:00), and one that it shows twice fires the first time.
package schedule
