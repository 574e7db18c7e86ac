// The pages that come when one of them is opened, in one file: so many small files would be as many requests.
export { default as Api } from "./api";
export { default as DeadLetters } from "./dead-letters";
export { default as Gates } from "./gates";
export { default as Operations } from "./operations";
export { default as Schedules } from "./schedules";
export { default as Settings } from "./settings";
export { default as Workers } from "./workers";
export { default as Workflows } from "./workflows";
