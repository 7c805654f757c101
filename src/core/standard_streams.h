#pragma once

// What every program does first with the three streams it was started with.

namespace nsa {

/// Opens /dev/null in place of each standard stream that is closed, so that no file opened later
/// takes its number and gets the program's lines written into it. Lets writing to a pipe that
/// nobody reads fail instead of ending the program: a run outlives the terminal that shows it. So
/// does writing beyond a limit on the size of files: it fails with a reason.
void hold_standard_streams();

/// For programs whose output is their result. Throws Error (code 1) when something that was printed
/// to stdout so far did not arrive: its disk is full, or its reader has left.
void check_standard_output();

}  // namespace nsa
